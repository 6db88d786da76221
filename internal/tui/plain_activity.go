package tui

import (
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

// activitySequences lists the sequences of the inspected worker.
func (p plainText) activitySequences(a *cluster.Activity) Table {
	t := numbered("sequences of "+a.Worker, "ID", "REQUEST", "STATE", ">PROMPT", ">CACHED", ">COMPUTED", ">OUT", ">BLOCKS", ">AGE")
	for i := range a.Sequences {
		s := &a.Sequences[i]
		t.Rows = append(t.Rows, []string{cells.OrUnknown(s.ID), cells.OrUnknown(s.RequestID), string(s.State), strconv.Itoa(s.PromptTokens), strconv.Itoa(s.CachedTokens),
			strconv.Itoa(s.ComputedTokens), strconv.Itoa(s.OutTokens), strconv.Itoa(s.Blocks), p.age(s.AgeMS)})
	}
	return t
}

// activityTransfers lists the KV transfers of the inspected worker.
func (p plainText) activityTransfers(a *cluster.Activity) Table {
	t := numbered("transfers of "+a.Worker, "DIR", "PEER", "VIA", "REQUEST", "KIND", "STATE", ">DONE", ">BLOCKS", ">BYTES DONE", ">BYTES", ">AGE")
	for i := range a.Transfers {
		x := &a.Transfers[i]
		done := cells.Unknown
		if x.BytesDone != nil {
			done = strconv.FormatInt(*x.BytesDone, 10)
		}
		t.Rows = append(t.Rows, []string{string(x.Direction), cells.OrUnknown(x.Peer), cells.OrUnknown(x.Transport), cells.OrUnknown(x.RequestID), string(x.Kind), string(x.State),
			cells.IntOr(x.BlocksDone), strconv.Itoa(x.Blocks), done, strconv.FormatInt(x.Bytes, 10), p.age(x.AgeMS)})
	}
	return t
}

func (p plainText) age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	return p.duration(&d, cells.Seconds)
}
