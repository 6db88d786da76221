package detail

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// imageSection shows what an encode worker does and has in hand.
func (m *worker) imageSection(w *cluster.Worker) Section {
	s := &w.Stats
	lines := [][]draw.Span{
		{draw.Dim.Text(cells.PadRight("encoding", 14) + " "), draw.Strong.Text(moment.Number(w, s.Running)), draw.Plain.Text("   queued " + moment.Number(w, s.Waiting))},
	}
	if r := w.Images; r != nil {
		lines = append(lines,
			draw.Fact("encoded", moment.ImageRate(r)+"   cache hits "+percentSign(r.HitRate), draw.Plain),
			draw.Fact("moved", cells.Throughput(r.MovedBS)+" of embeddings", draw.Plain))
	}
	if s.EmbeddingsLimit > 0 {
		cache := []draw.Span{draw.Dim.Text(cells.PadRight("cache", 14) + " ")}
		cache = append(cache, draw.Bar(m.Glyphs, float64(s.EmbeddingsBytes)/float64(s.EmbeddingsLimit), 16, draw.Focused)...)
		lines = append(lines, append(cache, draw.Plain.Text("  "+cells.Bytes(float64(s.EmbeddingsBytes))+" of "+cells.Bytes(float64(s.EmbeddingsLimit)))),
			draw.Fact("", "embeddings of "+cells.Commas(s.Embeddings)+" images", draw.Plain))
	}
	return Section{"images (" + moment.Sequences(w) + ")", append(lines, m.imageLines(w.Name)...)}
}

// imageLines list the images that an encode worker has in hand, the oldest first.
func (m *worker) imageLines(worker string) [][]draw.Span {
	if why := m.unasked(worker); why != nil {
		return why
	}
	a := m.Activity(worker)
	if a.ImagesTotal == 0 {
		return [][]draw.Span{{draw.Dim.Text("none at present")}}
	}
	rows := [][]draw.Span{draw.Titles("STATE REQUEST FOR TOKENS AGE")}
	for i := range a.Images[:min(len(a.Images), m.activityRows())] {
		x := &a.Images[i]
		st, state := draw.Encode, string(x.State)
		if x.State == cluster.ImageOffered {
			st = draw.Good
		}
		if x.Cached {
			state += ", cached"
		}
		rows = append(rows, []draw.Span{
			st.Text(state), draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(x.RequestID), 12, m.Glyphs.More)), draw.Plain.Text(cells.OrUnknown(x.Worker)),
			draw.Plain.Text(cells.Commas(x.Tokens)), draw.Plain.Text(m.ageSince(x.AgeMS)),
		})
	}
	return m.andMore(draw.Grid(rows, []bool{false, false, false, true, true}), a.ImagesTotal-(len(rows)-1))
}
