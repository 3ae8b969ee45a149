package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/testcluster"
	"lockstep/perf/load"
	"lockstep/perf/report"
)

// measured runs a load and takes the processor time of what is counted. pid is
// the broker's, 0 = not known.
func measured(ctx context.Context, o load.Options, client string, pid int) (report.Run, *load.Result, error) {
	var own, broker []time.Duration
	before := o.Mark
	o.Mark = func() {
		own, broker = append(own, ownCPU()), append(broker, testcluster.ProcCPU(pid))
		if before != nil {
			before()
		}
	}
	run := load.Run
	if client == "kgo" {
		run = load.RunKgo
	}
	res, err := run(ctx, o)
	if err == nil && len(own) < 2 {
		err = errors.Join(ctx.Err(), errors.New("the load was broken off"))
	}
	if err != nil {
		return report.Run{}, nil, err
	}
	if o.InFlight == 0 && !o.OneInFlight { // what was due in the window is counted, and what it took after it
		own[1], broker[1] = ownCPU(), testcluster.ProcCPU(pid)
	}
	s := res.Elapsed.Seconds()
	r := report.Run{Client: client, Acks: int(o.Acks), RecordSize: o.RecordSize, Batch: o.Batch, Connections: o.Connections, Partitions: len(o.Targets), InFlight: o.InFlight,
		RateMBPerS: round(o.Rate / 1e6), Seconds: round(s), Records: res.Records, Requests: res.Requests, Errors: res.Errors,
		RecordsPerS: round(float64(res.Records) / s), MBPerS: round(float64(res.Records) * float64(o.RecordSize) / 1e6 / s),
		P50: round(res.Ms(50)), P99: round(res.Ms(99)), P999: round(res.Ms(99.9)), Max: round(res.Ms(100)), LoadCPU: round((own[1] - own[0]).Seconds())}
	if r.BrokerCPU = round((broker[1] - broker[0]).Seconds()); r.BrokerCPU > 0 {
		r.PerCPU = round(float64(res.Records) / r.BrokerCPU)
	}
	if o.InFlight > 0 {
		r.RateMBPerS = 0
	}
	if o.OneInFlight {
		r.RateMBPerS, r.InFlight, r.Batch, r.Connections, r.Partitions = 0, 1, 1, 1, 1
	}
	if client == "kgo" {
		r.Connections = 1
	}
	if res.FirstError != nil {
		r.FirstError = res.FirstError.Error()
	}
	return r, res, nil
}

// percentiles is the curve of a run, from the median on.
func percentiles(res *load.Result) (list []report.Point) {
	for _, p := range []float64{50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99} {
		list = append(list, report.Point{X: p, Y: res.Ms(p)})
	}
	return list
}

// mallocs counts what a broker allocates for a request, by its admin listener.
type mallocs struct {
	Requests   int64   `json:"requests"`
	Mallocs    int64   `json:"mallocs"` // without those of the scrapes
	PerRequest float64 `json:"per_request"`
}

// scrape is what the metrics page says of them.
type scrape struct{ mallocs, requests int64 }

func scrapeAdmin(admin, request string) (s scrape, err error) {
	page := metricsPage(admin)
	for name, to := range map[string]*int64{"\ngo_memstats_mallocs_total ": &s.mallocs, "\nkafka_network_requests_total{request=\"" + request + "\"} ": &s.requests} {
		n, err := strconv.ParseFloat(between(page, name, "\n"), 64)
		if err != nil {
			return s, fmt.Errorf("the metrics of %s have no%s", admin, strings.ReplaceAll(name, "\n", " "))
		}
		*to = int64(n)
	}
	return s, nil
}

// metricsPage is empty if nobody answers.
func metricsPage(admin string) string {
	c := http.Client{Timeout: scrapeTimeout}
	resp, err := c.Get("http://" + admin + "/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return "\n" + string(page)
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	value, _, _ := strings.Cut(rest, to)
	return value
}

// counting wraps the marks of a load in scrapes. The returned function gives
// the result.
func counting(admin, request string) (mark func(), result func() (*mallocs, error), err error) {
	// Two scrapes after another: what a scrape itself allocates.
	var own [3]scrape
	for i := range own {
		if own[i], err = scrapeAdmin(admin, request); err != nil {
			return nil, nil, err
		}
	}
	var seen []scrape
	var failed error
	mark = func() {
		s, err := scrapeAdmin(admin, request)
		failed = errors.Join(failed, err)
		seen = append(seen, s)
	}
	return mark, func() (*mallocs, error) {
		if failed != nil || len(seen) < 2 {
			return nil, errors.Join(failed, errors.New("no two scrapes"))
		}
		m := &mallocs{Requests: seen[1].requests - seen[0].requests, Mallocs: seen[1].mallocs - seen[0].mallocs - (own[2].mallocs - own[1].mallocs)}
		m.PerRequest = round4(float64(m.Mallocs) / float64(max(1, m.Requests)))
		return m, nil
	}, nil
}

// engineOf is the engine our broker runs on.
func engineOf(admin string) string {
	if admin == "" {
		return "unknown"
	}
	name := between(metricsPage(admin), `lockstep_info{engine="`, `"`)
	if name == "" {
		return "unknown"
	}
	return name
}

func round4(x float64) float64 { return math.Round(x*10000) / 10000 }
