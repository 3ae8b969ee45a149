package report

import (
	"fmt"
	"math"
	"strings"
)

// Curve is a line of a plot.
type Curve struct {
	Name   string
	Points []Point
}

// Axis of a plot. Ticks are where its values are named.
type Axis struct {
	Name  string
	Log   bool // of Y: a logarithmic scale
	Nines bool // of X: percentiles, each nine as wide as the next
}

const (
	plotWidth, plotHeight   = 760, 420
	marginLeft, marginRight = 80, 160
	marginTop, marginBottom = 40, 56
	colours                 = "#c1272d #0000a7 #008176 #eecc16 #b3b3b3"
	innerWidth, innerHeight = plotWidth - marginLeft - marginRight, plotHeight - marginTop - marginBottom
)

// scale maps values of an axis to 0 … 1.
type scale struct {
	of       func(float64) float64
	low, top float64
}

func (s scale) at(v float64) float64 { return (s.of(v) - s.low) / (s.top - s.low) }

func plain(v float64) float64 { return v }

// nines is 0 for the percentile 0, 1 for 90, 2 for 99.
func nines(p float64) float64 { return -math.Log10(1 - min(p, 99.9999)/100) }

func scaleOf(values []float64, of func(float64) float64, zero bool) scale {
	s := scale{of: of, low: math.Inf(1), top: math.Inf(-1)}
	for _, v := range values {
		s.low, s.top = min(s.low, of(v)), max(s.top, of(v))
	}
	if zero {
		s.low = 0
	}
	if !(s.top > s.low) { // one value, or none
		s.low, s.top = s.low-1, s.low+1
		if math.IsInf(s.low, 0) {
			s.low, s.top = 0, 1
		}
	}
	return s
}

// SVG draws curves. Points without a positive Y are left out of a logarithmic
// plot.
func SVG(title string, x, y Axis, curves []Curve) string {
	var xs, ys []float64
	for _, c := range curves {
		for _, p := range c.Points {
			if !y.Log || p.Y > 0 {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	sx, sy := scaleOf(xs, plain, true), scaleOf(ys, plain, true)
	if x.Nines {
		sx = scaleOf(xs, nines, false)
	}
	if y.Log {
		sy = scaleOf(ys, math.Log10, false)
		sy.low, sy.top = math.Floor(sy.low), math.Ceil(sy.top)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	text(&b, plotWidth/2, 22, "middle", title)
	text(&b, marginLeft+innerWidth/2, plotHeight-14, "middle", x.Name)
	fmt.Fprintf(&b, `<text x="18" y="%d" text-anchor="middle" transform="rotate(-90 18 %d)">%s</text>`+"\n", marginTop+innerHeight/2, marginTop+innerHeight/2, escape(y.Name))
	for _, v := range ticks(sx, x.Nines, false) {
		px := marginLeft + sx.at(v)*innerWidth
		line(&b, px, marginTop, px, marginTop+innerHeight, "#dddddd")
		text(&b, px, marginTop+innerHeight+18, "middle", tick(v))
	}
	for _, v := range ticks(sy, false, y.Log) {
		py := marginTop + (1-sy.at(v))*innerHeight
		line(&b, marginLeft, py, marginLeft+innerWidth, py, "#dddddd")
		text(&b, marginLeft-8, py+4, "end", tick(v))
	}
	for i, c := range curves {
		colour := strings.Fields(colours)[i%len(strings.Fields(colours))]
		draw(&b, c, colour, sx, sy, y.Log)
		ly := float64(marginTop + 14 + 20*i)
		fmt.Fprintf(&b, `<rect x="%d" y="%.0f" width="14" height="4" fill="%s"/>`+"\n", marginLeft+innerWidth+14, ly-6, colour)
		text(&b, marginLeft+innerWidth+34, ly, "start", c.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func draw(b *strings.Builder, c Curve, colour string, sx, sy scale, log bool) {
	var path strings.Builder
	for _, p := range c.Points {
		if log && p.Y <= 0 {
			continue
		}
		px, py := marginLeft+sx.at(p.X)*innerWidth, marginTop+(1-sy.at(p.Y))*innerHeight
		fmt.Fprintf(&path, "%.1f,%.1f ", px, py)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px, py, colour)
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", colour, strings.TrimSpace(path.String()))
}

// ticks are the values that are named on an axis.
func ticks(s scale, nine, log bool) (list []float64) {
	switch {
	case nine:
		for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99} {
			if v := nines(p); v >= s.low-1e-9 && v <= s.top+1e-9 {
				list = append(list, p)
			}
		}
	case log:
		for e := s.low; e <= s.top; e++ {
			list = append(list, math.Pow(10, e))
		}
	default:
		step := math.Pow(10, math.Floor(math.Log10(s.top-s.low)))
		for (s.top-s.low)/step < 4 {
			step /= 2
		}
		for v := math.Ceil(s.low/step) * step; v <= s.top+step/1e6; v += step {
			list = append(list, v)
		}
	}
	return list
}

func tick(v float64) string { return fmt.Sprintf("%.6g", v) }

func line(b *strings.Builder, x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
}

func text(b *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escape(s))
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
