package soak

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/testcluster"
	"lockstep/perf/report"
)

// figure is a name, and whether it is memory in MiB or a count.
type figure struct {
	name   string
	memory bool
}

// Figures that are judged. What is left of memory without the pages of files has two
// parts that a leak shows in closely: what is not of Go's heap, and what Go's
// collector found live (its aim is twice that). The third is Go's garbage: Go keeps
// resident what its heap has in use and up to a tenth more (retainExtraPercent of
// runtime/mgcscavenge.go), 0.7 MiB here, and where in that tenth it is wanders for
// minutes. So their sum may be red though nothing is kept; the parts say which it is.
var figures = []figure{{"RSS, MiB", true}, {"RSS without files, MiB", true}, {noFile, true}, {liveHeap, true},
	{"descriptors", false}, {"goroutines", false}, {"threads", false}, {"maps", false}, {"files on disk", false}}

const (
	noFile   = "resident of no file, MiB" // nor of Go's heap
	liveHeap = "live heap aimed at, MiB"
)

// more are kept for whoever looks for a cause.
var more = map[string]string{"heap in use, MiB": "go_memstats_heap_inuse_bytes", "Go's memory, MiB": "go_memstats_sys_bytes", "given back by Go, MiB": "go_memstats_heap_released_bytes",
	liveHeap: "go_memstats_next_gc_bytes", "stacks, MiB": "go_memstats_stack_inuse_bytes", "heap objects": "go_memstats_heap_objects", "connections": "kafka_server_broker_connections"}

// sample looks at a broker once.
func sample(ctx context.Context, b *testcluster.Broker) (map[string]float64, error) {
	proc := filepath.Join("/proc", strconv.Itoa(b.Pid()))
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return nil, fmt.Errorf("%s is gone: %w", b.Name, err)
	}
	f := map[string]float64{"RSS, MiB": kib(string(status), "VmRSS") / 1024, "RSS without files, MiB": (kib(string(status), "RssAnon") + kib(string(status), "RssShmem")) / 1024, "threads": kib(string(status), "Threads")}
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return nil, err
	}
	f["maps"] = float64(strings.Count(string(maps), "\n"))
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return nil, err
	}
	f["descriptors"] = float64(len(files))
	err = filepath.WalkDir(b.Data, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			f["files on disk"]++
		}
		return nil // what is deleted meanwhile
	})
	if err != nil {
		return nil, err
	}
	if err := resident(filepath.Join(proc, "smaps"), f); err != nil {
		return nil, err
	}
	page, err := b.Page(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	f["goroutines"] = metric(page, "go_goroutines")
	for name, of := range more {
		f[name] = metric(page, of)
		if strings.HasSuffix(name, "MiB") {
			f[name] /= 1 << 20
		}
	}
	return f, nil
}

// kinds of what is mapped, by what the path ends in; the rest of the files is
// the program and its libraries.
var kinds = map[string]string{".log": "resident of logs, MiB", ".index": "resident of indexes, MiB", ".timeindex": "resident of indexes, MiB", ".db": "resident of the metadata log, MiB"}

// resident divides what a process has in memory by what it maps: where RSS
// grows, it says of what.
func resident(smaps string, f map[string]float64) error {
	data, err := os.ReadFile(smaps)
	if err != nil {
		return err
	}
	kind := ""
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) >= 5 && strings.Contains(words[0], "-") { // address, rights, offset, device, inode, path
			path := strings.Join(words[5:], " ")
			switch ext := filepath.Ext(strings.TrimSuffix(path, " (deleted)")); {
			case kinds[ext] != "":
				kind = kinds[ext]
			case strings.HasPrefix(path, "/"):
				kind = "resident of other files, MiB"
			case goHeap(words[0]):
				kind = "resident of Go's heap, MiB"
			default:
				kind = noFile
			}
		} else if len(words) >= 2 && words[0] == "Rss:" {
			v, _ := strconv.ParseFloat(words[1], 64)
			f[kind] += v / 1024
		}
	}
	return nil
}

// goHeap tells whether a mapping is of Go's heap: above the program, which is in
// the first 4 GiB, and below what the kernel gives to mmap.
func goHeap(span string) bool {
	from, _, _ := strings.Cut(span, "-")
	at, err := strconv.ParseUint(from, 16, 64)
	return err == nil && at>>32 > 0 && at>>44 < 7
}

// kib is a number of /proc/PID/status.
func kib(status, name string) float64 {
	_, rest, _ := strings.Cut("\n"+status, "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	for _, word := range strings.Fields(line) {
		v, _ := strconv.ParseFloat(word, 64)
		return v
	}
	return 0
}

func metric(page, name string) float64 {
	_, rest, _ := strings.Cut("\n"+page, "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	v, _ := strconv.ParseFloat(strings.TrimSpace(line), 64)
	return v
}

// sampler looks at all brokers every so often.
type sampler struct {
	every   time.Duration
	brokers []*testcluster.Broker
	// leak changes what was seen of the n-th sample: a test shows that growth
	// turns a run red.
	leak func(n int, figures map[string]float64)
	note func(format string, args ...any)
}

// run samples for a time and judges.
func (s *sampler) run(ctx context.Context, d time.Duration) (out []report.SoakBroker, err error) {
	begin := time.Now()
	var cpu []time.Duration
	for _, b := range s.brokers {
		out, cpu = append(out, report.SoakBroker{Name: b.Name}), append(cpu, b.CPU())
	}
	for n := 0; ; n++ {
		due := begin.Add(time.Duration(n) * s.every)
		if due.Sub(begin) > d {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(due)):
		}
		for i, b := range s.brokers {
			f, err := sample(ctx, b)
			if err != nil {
				return nil, err
			}
			if s.leak != nil {
				s.leak(n, f)
			}
			out[i].Samples = append(out[i].Samples, report.SoakSample{S: time.Since(begin).Seconds(), Figures: f})
			if n%6 == 0 {
				s.note("%5.0f s %-12s RSS %.1f MiB (%.1f without files), %.0f descriptors, %.0f goroutines, %.0f maps, %.0f files", due.Sub(begin).Seconds(), b.Name,
					f["RSS, MiB"], f["RSS without files, MiB"], f["descriptors"], f["goroutines"], f["maps"], f["files on disk"])
			}
		}
	}
	for i, b := range s.brokers {
		out[i].CPU = (b.CPU() - cpu[i]).Seconds()
		out[i].Trends = judge(&out[i])
	}
	return out, nil
}

func judge(b *report.SoakBroker) (trends []report.Trend) {
	for _, f := range figures {
		points, bound, seen := b.Points(f.name), countBound, countSeen
		if f.memory {
			mean := 0.0
			for _, p := range points {
				mean += p.Y / float64(len(points))
			}
			bound, seen = memoryBound*mean, memorySeen*mean
		}
		trends = append(trends, report.NewTrend(f.name, points, bound, seen))
	}
	return trends
}
