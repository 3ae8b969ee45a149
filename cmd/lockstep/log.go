package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lockstep/internal/cli"
	"lockstep/internal/compress"
	"lockstep/internal/wire"
	"lockstep/segment"
)

func logCommand(o *cli.Options) *cobra.Command {
	return group("log", "Look into the segment files of a broker that is stopped", "  lockstep log verify /data/lockstep",
		logDumpCommand(o), logVerifyCommand(o))
}

// logFiles returns the segment files at path: itself, or all below it, ordered
// by partition and base offset.
func logFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, cli.Fail("opening "+path, err, "name a .log file, a partition's directory or a log directory")
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	for _, pattern := range []string{"*.log", "*/*.log"} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(path), pattern))
		if err != nil {
			return nil, cli.Fail("listing "+path, err, "check its permissions")
		}
		for _, f := range found {
			if _, ok := baseOffset(f); ok {
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 {
		return nil, cli.Fail("looking for segment files", fmt.Errorf("none in %s or its directories", path), "name a .log file, a partition's directory or a log directory")
	}
	slices.Sort(files)
	return files, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// baseOffset reads the name of a segment file.
func baseOffset(file string) (int64, bool) {
	digits, ok := strings.CutSuffix(filepath.Base(file), ".log")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n >= 0
}

// withFile maps a file and calls f with its bytes.
func withFile(name string, f func(data []byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return cli.Fail("opening "+name, err, "check its permissions")
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return errors.Join(err, f(nil))
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return cli.Fail("mapping "+name, err, "copy the file to a file system that maps files, and name the copy")
	}
	return errors.Join(f(data), unix.Munmap(data))
}

type batchLine struct {
	File          string       `json:"file"`
	Position      int64        `json:"position"` // bytes into the file
	BaseOffset    int64        `json:"baseOffset"`
	LastOffset    int64        `json:"lastOffset"`
	Count         int32        `json:"count"`
	Epoch         int32        `json:"partitionLeaderEpoch"`
	ProducerID    int64        `json:"producerId"`
	ProducerEpoch int16        `json:"producerEpoch"`
	BaseSequence  int32        `json:"baseSequence"`
	Codec         string       `json:"codec"`
	Control       bool         `json:"control"`
	Transactional bool         `json:"transactional"`
	CreateTime    int64        `json:"baseTimestamp"` // ms since 1970
	MaxTimestamp  int64        `json:"maxTimestamp"`
	Size          int          `json:"size"` // bytes
	CRC           bool         `json:"crcOk"`
	Records       []recordLine `json:"records,omitempty"`
}

type recordLine struct {
	Offset    int64   `json:"offset"`
	Timestamp int64   `json:"timestamp"`
	Key       *string `json:"key"`   // null, text, or 0x and hex
	Value     *string `json:"value"` // likewise
}

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7"}

func describeBatch(file string, pos int64, b wire.Batch) batchLine {
	return batchLine{File: file, Position: pos, BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Count: b.RecordCount(), Epoch: b.PartitionLeaderEpoch(),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), Codec: codecs[b.Codec()], Control: b.Control(),
		Transactional: b.Transactional(), CreateTime: b.BaseTimestamp(), MaxTimestamp: b.MaxTimestamp(), Size: b.Size(), CRC: b.CheckCRC()}
}

// readRecords expands the records of a batch whose checksum fits.
func readRecords(b wire.Batch) ([]recordLine, error) {
	payload, err := compress.Decompress(b.Codec(), b.Payload(), maxInflated)
	if err != nil {
		return nil, err
	}
	var list []recordLine
	it := wire.Records(payload)
	for it.Next() {
		r := it.Record()
		list = append(list, recordLine{b.BaseOffset() + int64(r.OffsetDelta), b.BaseTimestamp() + r.TimestampDelta, text(r.Key), text(r.Value)})
	}
	return list, it.Err()
}

// text shows bytes; nil for null.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' }) {
		s = fmt.Sprintf("0x%x", b)
	}
	return &s
}

func shown(s *string) string {
	if s == nil {
		return "null"
	}
	return strconv.Quote(*s)
}

func logDumpCommand(o *cli.Options) *cobra.Command {
	var records bool
	cmd := &cobra.Command{Use: "dump FILE|DIR", Short: "Print the batches of segment files", Args: cobra.ExactArgs(1),
		Long:    "Print the record batches of a .log file, or of all below a directory. With --json each batch is one line.",
		Example: "  lockstep log dump /data/lockstep/orders-0 --records",
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := logFiles(args[0])
			if err != nil {
				return err
			}
			p := printer(cmd, o)
			var bar *progress
			if terminal(p.Out) == nil { // there, what is written shows how far it is
				bar = newProgress(p, "dump", files)
			}
			defer bar.end()
			for _, f := range files {
				p.Line("%s", f)
				if err := withFile(f, func(data []byte) error { return dumpFile(p, f, data, records, bar) }); err != nil {
					return err
				}
			}
			return nil
		}}
	cmd.Flags().BoolVar(&records, "records", false, "print the records too")
	return cmd
}

func dumpFile(p *cli.Printer, file string, data []byte, records bool, bar *progress) error {
	defer bar.fileDone(len(data))
	enc := json.NewEncoder(p.Out)
	_, err := segment.Walk(data, func(pos int64, b wire.Batch) error {
		bar.at(pos)
		line := describeBatch(file, pos, b)
		if records && line.CRC {
			var err error
			if line.Records, err = readRecords(b); err != nil {
				p.Note("%s: byte %d: records: %v", file, pos, err)
			}
		}
		if p.JSON {
			return enc.Encode(line)
		}
		p.Line("  byte %d  offsets %d..%d  epoch %d  pid %d/%d  seq %d  %s%s  time %s..%s  %d bytes  crc %s", pos, line.BaseOffset, line.LastOffset, line.Epoch,
			line.ProducerID, line.ProducerEpoch, line.BaseSequence, line.Codec, flags(line), stamp(line.CreateTime), stamp(line.MaxTimestamp), line.Size,
			map[bool]string{true: "ok", false: "WRONG"}[line.CRC])
		for _, r := range line.Records {
			p.Line("    %d  %s  key %s  value %s", r.Offset, stamp(r.Timestamp), shown(r.Key), shown(r.Value))
		}
		return nil
	})
	return err
}

func flags(b batchLine) string {
	s := ""
	if b.Control {
		s += " control"
	}
	if b.Transactional {
		s += " transactional"
	}
	return s
}

func stamp(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
