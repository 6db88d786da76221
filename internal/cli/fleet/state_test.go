package fleet

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestWork(t *testing.T) {
	for _, tc := range []struct {
		sequences, images int
		last              cluster.Role
		want              string
	}{
		{0, 0, cluster.RoleDecode, "0 sequences"},
		{0, 0, cluster.RoleEncode, "0 images"},
		{1, 0, cluster.RoleEncode, "1 sequence"},
		{0, 1, cluster.RoleDecode, "1 image"},
		{2, 3, cluster.RoleDecode, "2 sequences and 3 images"},
	} {
		w := Work{}
		w.Add(cluster.RolePrefill, tc.sequences)
		w.Add(cluster.RoleEncode, tc.images)
		w.Add(tc.last, 0)
		if got := w.String(); got != tc.want || w.Sum() != tc.sequences+tc.images {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

func TestDrainText(t *testing.T) {
	for _, tc := range []struct {
		role cluster.Role
		d    cluster.DrainStatus
		want string
	}{
		{cluster.RoleDecode, cluster.DrainStatus{Step: cluster.DrainSequences, Sequences: 3, Left: 1}, "1 of 3 sequences left"},
		{cluster.RoleEncode, cluster.DrainStatus{Step: cluster.DrainSequences, Sequences: 3, Left: 1}, "1 of 3 images left"},
		{cluster.RoleEncode, cluster.DrainStatus{Step: cluster.DrainOutgoing}, "outgoing-embeddings"},
		{cluster.RoleEncode, cluster.DrainStatus{Step: cluster.DrainLease}, "revoke-lease"},
		{cluster.RolePrefill, cluster.DrainStatus{Step: cluster.DrainOutgoing}, "outgoing-kv"},
	} {
		if got := DrainText(cluster.Worker{WorkerStatus: cluster.WorkerStatus{Role: tc.role, Drain: &tc.d}}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.role, got, tc.want)
		}
	}
}
