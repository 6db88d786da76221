package detail

import (
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

// ActivityTables are the sequences and the KV transfers of the worker that was asked, or its
// images.
func ActivityTables(a *cluster.Activity, o plain.Options) []plain.Table {
	if a.ImagesTotal > 0 {
		return []plain.Table{imageTable(a, o)}
	}
	return []plain.Table{sequenceTable(a, o), transferTable(a, o)}
}

func imageTable(a *cluster.Activity, o plain.Options) plain.Table {
	t := plain.New("images of "+a.Worker, "REQUEST", "WORKER", "STATE", "CACHED", ">TOKENS", ">AGE")
	for i := range a.Images {
		x := &a.Images[i]
		t.Add(cells.OrUnknown(x.RequestID), cells.OrUnknown(x.Worker), string(x.State), strconv.FormatBool(x.Cached), strconv.Itoa(x.Tokens), o.Age(x.AgeMS))
	}
	return t
}

func sequenceTable(a *cluster.Activity, o plain.Options) plain.Table {
	t := plain.New("sequences of "+a.Worker, "ID", "REQUEST", "STATE", ">PROMPT", ">CACHED", ">COMPUTED", ">OUT", ">BLOCKS", ">AGE")
	for i := range a.Sequences {
		s := &a.Sequences[i]
		t.Add(cells.OrUnknown(s.ID), cells.OrUnknown(s.RequestID), string(s.State), strconv.Itoa(s.PromptTokens), strconv.Itoa(s.CachedTokens),
			strconv.Itoa(s.ComputedTokens), strconv.Itoa(s.OutTokens), strconv.Itoa(s.Blocks), o.Age(s.AgeMS))
	}
	return t
}

func transferTable(a *cluster.Activity, o plain.Options) plain.Table {
	t := plain.New("transfers of "+a.Worker, "DIR", "PEER", "VIA", "REQUEST", "KIND", "STATE", ">DONE", ">BLOCKS", ">BYTES DONE", ">BYTES", ">AGE")
	for i := range a.Transfers {
		x := &a.Transfers[i]
		done := cells.Unknown
		if x.BytesDone != nil {
			done = strconv.FormatInt(*x.BytesDone, 10)
		}
		t.Add(string(x.Direction), cells.OrUnknown(x.Peer), cells.OrUnknown(x.Transport), cells.OrUnknown(x.RequestID), string(x.Kind), string(x.State),
			cells.IntOr(x.BlocksDone), strconv.Itoa(x.Blocks), done, strconv.FormatInt(x.Bytes, 10), o.Age(x.AgeMS))
	}
	return t
}
