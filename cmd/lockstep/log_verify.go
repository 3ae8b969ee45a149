package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"lockstep/internal/cli"
	"lockstep/internal/compress"
	"lockstep/internal/wire"
	"lockstep/segment"
)

// damage is what is wrong with a file, and where.
type damage struct {
	File string `json:"file"`
	Byte int64  `json:"byte"`
	What string `json:"what"`
}

type verifyResult struct {
	Files   int      `json:"files"`
	Batches int64    `json:"batches"`
	Records int64    `json:"records"`
	Bytes   int64    `json:"bytes"` // of whole batches
	Damage  []damage `json:"damage"`
}

func logVerifyCommand(o *cli.Options) *cobra.Command {
	return &cobra.Command{Use: "verify DIR...", Short: "Check every batch of segment files; exit 1 on damage", Args: cobra.MinimumNArgs(1),
		Long: `Read all segment files below the directories and check what can be checked: whole
batches, checksums, records of a batch, offsets without holes from batch to batch and from
segment to segment, zeros only after the last batch. Stop the broker first: a file that is
being written looks torn.`,
		Example: "  lockstep log verify /data/lockstep",
		RunE: func(cmd *cobra.Command, args []string) error {
			p := printer(cmd, o)
			var files []string
			for _, dir := range args {
				found, err := logFiles(dir)
				if err != nil {
					return err
				}
				files = append(files, found...)
			}
			v := verifier{result: verifyResult{Damage: []damage{}}, progress: newProgress(p, "verify", files)}
			defer v.progress.end() // also when a file cannot be read
			for _, f := range files {
				if err := v.file(f); err != nil {
					return err
				}
			}
			v.progress.end()
			return v.report(p)
		}}
}

// verifier checks files in the order of partition and offset.
type verifier struct {
	result verifyResult
	dir    string // of the last file
	next   int64  // offset that must follow, -1 = any

	progress *progress
}

func (v *verifier) report(p *cli.Printer) error {
	r := &v.result
	for _, d := range r.Damage {
		p.Line("DAMAGED %s: byte %d: %s", d.File, d.Byte, d.What)
	}
	p.Line("%d files, %d batches, %d records, %d bytes: %d damaged places", r.Files, r.Batches, r.Records, r.Bytes, len(r.Damage))
	if p.JSON {
		if err := p.Document(r); err != nil {
			return err
		}
	}
	if n := len(r.Damage); n > 0 {
		return cli.Fail("verify", fmt.Errorf("%d damaged places, the first in %s at byte %d", n, r.Damage[0].File, r.Damage[0].Byte),
			"a torn tail is cut when the broker starts; anything else is to be fetched again from another replica")
	}
	return nil
}

func (v *verifier) file(name string) error {
	if dir := filepath.Dir(name); dir != v.dir {
		v.dir, v.next = dir, -1
	}
	v.result.Files++
	return withFile(name, func(data []byte) error {
		defer v.progress.fileDone(len(data))
		base, ok := baseOffset(name)
		if !ok {
			base = v.next
		}
		if v.next >= 0 && base != v.next {
			v.damaged(name, 0, fmt.Sprintf("begins at offset %d, the segment before ends at %d", base, v.next))
		}
		v.next = base
		return v.walk(name, data)
	})
}

func (v *verifier) damaged(name string, pos int64, what string) {
	v.result.Damage = append(v.result.Damage, damage{name, pos, what})
}

var errStop = errors.New("stop")

func (v *verifier) walk(name string, data []byte) error {
	end, err := segment.Walk(data, func(pos int64, b wire.Batch) error {
		what := v.batch(b)
		if what != "" {
			v.damaged(name, pos, what)
			return errStop // offsets after it prove nothing
		}
		v.result.Batches++
		v.result.Records += int64(b.RecordCount())
		v.result.Bytes += int64(b.Size())
		v.next = b.NextOffset()
		v.progress.at(pos)
		return nil
	})
	if errors.Is(err, errStop) {
		v.next = -1
		return nil
	}
	if err != nil {
		return err
	}
	if rest := data[end:]; len(bytes.Trim(rest, "\x00")) > 0 {
		v.damaged(name, end, "no whole batch, and not zeros: a torn tail if this is the last segment, else damage")
	}
	return nil
}

// batch says what is wrong with b, "" for nothing.
func (v *verifier) batch(b wire.Batch) string {
	switch {
	case b.Magic() != 2:
		return fmt.Sprintf("format %d instead of 2", b.Magic())
	case !b.CheckCRC():
		return "the checksum does not fit the bytes"
	case v.next >= 0 && b.BaseOffset() != v.next:
		return fmt.Sprintf("offset %d follows %d", b.BaseOffset(), v.next-1)
	case b.RecordCount() < 0 || b.LastOffsetDelta() < 0:
		return "negative counts"
	}
	if b.RecordCount() == 0 && len(b.Payload()) == 0 {
		return "" // all of them were superseded
	}
	payload, err := compress.Decompress(b.Codec(), b.Payload(), maxInflated)
	switch {
	case err != nil:
		return "records: " + err.Error()
	case !wire.CheckKept(payload, b.RecordCount(), b.LastOffsetDelta()):
		return fmt.Sprintf("the records are not %d with rising offsets", b.RecordCount())
	}
	return ""
}
