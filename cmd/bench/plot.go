package main

import (
	"bytes"
	"image/color"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth = 18 * vg.Centimeter
	barHeight = 0.45 * vg.Centimeter
	// panelMargin is the height of a panel without its bars.
	panelMargin = 2.4 * vg.Centimeter
)

var (
	firstColor = color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff}
	otherColor = color.RGBA{R: 0x2f, G: 0x6d, B: 0xb5, A: 0xff}
)

// panel is the comparison of one metric.
type panel struct {
	plot   *plot.Plot
	height vg.Length
}

// plotResults writes a panel for each plotted metric of each result, one below the other, into an SVG file.
func plotResults(path string, results []result) error {
	var panels []panel
	height := vg.Length(0)
	for _, r := range results {
		for m := range r.metrics {
			if !r.metrics[m].plotted {
				continue
			}
			p, err := newPanel(r, m)
			if err != nil {
				return err
			}
			panels, height = append(panels, p), height+p.height
		}
	}
	canvas := vgsvg.New(plotWidth, height)
	page := draw.New(canvas)
	top := height
	for _, p := range panels {
		top -= p.height
		p.plot.Draw(draw.Crop(page, 0, 0, top, top+p.height-height))
	}
	var text bytes.Buffer
	if _, err := canvas.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(path, bytes.ReplaceAll(text.Bytes(),
		[]byte("font-family:Liberation Sans"), []byte("font-family:"+families)), 0o644)
}

// sans is the font of the plots, and families are fonts with the same widths, so that texts keep their places without
// it.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

const families = "Liberation Sans,Arial,Helvetica,sans-serif"

func init() { plot.DefaultFont, plotter.DefaultFont = sans, sans }

// newPanel draws the medians of a metric as bars, and the lowest and the highest round as whiskers. The first contender
// is at the top. A figure that was not measured has no bar.
func newPanel(r result, m int) (panel, error) {
	p := plot.New()
	p.Title.Text = r.name
	p.X.Label.Text = r.metrics[m].title() + " (" + string(r.metrics[m].better) + " is better)"
	p.X.Min = 0
	p.X.Tick.Marker = commaTicks{}
	n := len(r.contenders)
	names := make([]string, n)
	var labels plotter.XYLabels
	var whiskers errorPoints
	for c, name := range r.contenders {
		row := n - 1 - c
		names[row] = name + "   " // room for wider fonts
		l := r.line(c, m)
		if l.Median == nil {
			continue
		}
		bar, err := plotter.NewBarChart(plotter.Values{*l.Median}, barHeight*3/5)
		if err != nil {
			return panel{}, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width, bar.Color = true, float64(row), 0, otherColor
		if c == 0 {
			bar.Color = firstColor
		}
		p.Add(bar)
		low, high := *l.Median, *l.Median
		for _, v := range l.Rounds {
			low, high = min(low, *v), max(high, *v)
		}
		whiskers.XYs = append(whiskers.XYs, plotter.XY{X: *l.Median, Y: float64(row)})
		whiskers.XErrors = append(whiskers.XErrors, struct{ Low, High float64 }{low - *l.Median, high - *l.Median})
		labels.XYs = append(labels.XYs, plotter.XY{X: high, Y: float64(row)})
		labels.Labels = append(labels.Labels, "  "+short(*l.Median))
		p.X.Max = max(p.X.Max, high*1.15)
	}
	if len(labels.XYs) > 0 {
		if err := decorate(p, labels, whiskers); err != nil {
			return panel{}, err
		}
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.5, float64(n)-0.5
	return panel{p, panelMargin + vg.Length(n)*barHeight}, nil
}

// errorPoints are medians and their spread.
type errorPoints struct {
	plotter.XYs
	plotter.XErrors
}

// decorate adds the figures and the whiskers of the bars.
func decorate(p *plot.Plot, labels plotter.XYLabels, whiskers errorPoints) error {
	lines, err := plotter.NewXErrorBars(whiskers)
	if err != nil {
		return err
	}
	lines.CapWidth = barHeight / 4
	texts, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range texts.TextStyle {
		texts.TextStyle[i].YAlign = draw.YCenter
	}
	p.Add(lines, texts)
	return nil
}

// commaTicks are the default ticks, labelled like the tables.
type commaTicks struct{}

func (commaTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, tick := range ticks {
		switch {
		case tick.IsMinor():
		case tick.Value >= 1000:
			ticks[i].Label = thousands(int64(tick.Value))
		default:
			ticks[i].Label = strconv.FormatFloat(tick.Value, 'g', 4, 64)
		}
	}
	return ticks
}
