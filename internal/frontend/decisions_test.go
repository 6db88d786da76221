package frontend

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func decision(id string, phase cluster.Role, chosen string) cluster.RouterDecision {
	return cluster.RouterDecision{RequestID: id, Phase: phase, Chosen: chosen}
}

// spelled are decisions as text: "r-1 decode worker-2".
func spelled(ds []cluster.RouterDecision) (out []string) {
	for _, d := range ds {
		out = append(out, d.RequestID+" "+string(d.Phase)+" "+d.Chosen)
	}
	return out
}

func TestDecisionsAreKept(t *testing.T) {
	k := newDecisions()
	k.add(decision("ab-1", cluster.RolePrefill, "worker-1"))
	k.add(decision("ab-1", cluster.RoleDecode, "worker-2"))
	k.add(decision("ab-1", cluster.RoleDecode, "worker-3")) // told again
	k.add(decision("ac-2", cluster.RoleDecode, "worker-2"))
	k.add(decision("ab-1~1", cluster.RoleDecode, "worker-4")) // the request went on elsewhere
	for _, tc := range []struct {
		id    string
		limit int
		want  []string
	}{
		{"ab-1", 9, []string{"ab-1 prefill worker-1", "ab-1 decode worker-3", "ab-1~1 decode worker-4"}},
		{"ac", 9, []string{"ac-2 decode worker-2"}},
		{"", 9, []string{"ac-2 decode worker-2", "ab-1 prefill worker-1", "ab-1 decode worker-3", "ab-1~1 decode worker-4"}},
		{"", 1, []string{"ac-2 decode worker-2"}},
		{"b", 9, nil},
	} {
		if got := spelled(k.find(tc.id, tc.limit)); !slices.Equal(got, tc.want) {
			t.Errorf("find(%q, %d) = %q, want %q", tc.id, tc.limit, got, tc.want)
		}
	}
}

func TestDecisionsAreBounded(t *testing.T) {
	k := newDecisions()
	for i := range 3*keptRequests + 7 {
		k.add(decision(fmt.Sprintf("r%05d", i), cluster.RoleDecode, "worker-1"))
	}
	if len(k.of) != keptRequests || len(k.order) != keptRequests {
		t.Errorf("%d requests are kept, %d in order", len(k.of), len(k.order))
	}
	newest := k.find("", 2)
	if want := []string{fmt.Sprintf("r%05d decode worker-1", 3*keptRequests+6), fmt.Sprintf("r%05d decode worker-1", 3*keptRequests+5)}; !slices.Equal(spelled(newest), want) {
		t.Errorf("newest: %q, want %q", spelled(newest), want)
	}
	for i := range 3 * keptPerRequest {
		k.add(decision(fmt.Sprintf("long~%d", i), cluster.RoleDecode, "worker-1"))
	}
	if list := k.find("long", 1); len(list) != keptPerRequest || list[len(list)-1].RequestID != fmt.Sprintf("long~%d", 3*keptPerRequest-1) {
		t.Errorf("%d decisions of one request", len(list))
	}
}
