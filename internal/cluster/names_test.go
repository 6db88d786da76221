package cluster

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestWorkerNumber(t *testing.T) {
	for _, n := range []int{1, 7, 10, 1024, math.MaxInt} {
		if got, err := WorkerNumber(WorkerName(n)); got != n || err != nil {
			t.Errorf("%s: %d %v", WorkerName(n), got, err)
		}
	}
	for _, bad := range []string{"", "worker", "worker-", "worker-0", "worker--1", "worker-01", "worker-+1", "worker-1 ", "Worker-1", "worker-1/x", "../worker-1", "worker-99999999999999999999", "prefill-1", "7"} {
		if n, err := WorkerNumber(bad); err == nil {
			t.Errorf("%q is worker %d", bad, n)
		} else if !strings.Contains(err.Error(), "worker-7") {
			t.Errorf("%q: the error shows no example: %v", bad, err)
		}
	}
}

func TestCompareNames(t *testing.T) {
	want := []string{"worker-1", "worker-2", "worker-9", "worker-10", "worker-100", "a", "b", "node-1", "worker-01"}
	for range 20 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, CompareNames)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	for _, a := range want {
		for _, b := range want {
			if x, y := CompareNames(a, b), CompareNames(b, a); (x == 0) != (a == b) || x > 0 && y >= 0 || x < 0 && y <= 0 {
				t.Errorf("%s and %s: %d and %d", a, b, x, y)
			}
		}
	}
}

func TestInstanceID(t *testing.T) {
	for _, id := range []InstanceID{0, 1, 0xff, 1<<53 - 1, 1 << 53, 1<<53 + 1, 7587888373457125123, math.MaxInt64, math.MaxUint64} {
		got, err := ParseInstanceID(id.String())
		if got != id || err != nil {
			t.Errorf("%d as %s: %d %v", uint64(id), id, uint64(got), err)
		}
		inst := Instance{InstanceID: id}
		b, err := json.Marshal(inst)
		if err != nil {
			t.Fatal(err)
		}
		var back Instance
		if err := json.Unmarshal(b, &back); err != nil || back != inst {
			t.Errorf("%d as JSON: %+v %v", uint64(id), back, err)
		}
	}
	if s := InstanceID(0x694d98147d540001).String(); s != "694d98147d540001" {
		t.Errorf("hex form %s", s)
	}
	for _, bad := range []string{"", "x", "0x1", "-1", "+1", "1_0", " 1", "10000000000000000", "1/2"} {
		if id, err := ParseInstanceID(bad); err == nil {
			t.Errorf("%q is id %s", bad, id)
		}
	}
	// Not through a float: 2^53+1 is not one.
	var id InstanceID
	for _, bad := range []string{`9007199254740993.0`, `9.007199254740993e15`, `"5"`, `-1`, `18446744073709551616`} {
		if err := json.Unmarshal([]byte(bad), &id); err == nil {
			t.Errorf("%s is id %d", bad, id)
		}
	}
}

func TestRoles(t *testing.T) {
	for _, r := range Roles {
		if got, err := ParseRole(string(r)); got != r || err != nil {
			t.Errorf("%s: %s %v", r, got, err)
		}
		if r.Component() != string(r) {
			t.Errorf("%s registers as %s", r, r.Component())
		}
	}
	for _, bad := range []string{"", "Prefill", "router", "decode "} {
		if r, err := ParseRole(bad); err == nil || r != "" {
			t.Errorf("%q is role %q", bad, r)
		}
	}
}

func TestStates(t *testing.T) {
	for s, serving := range map[State]bool{
		"": false, StatePending: false, StateLoading: false, StateWarming: false, StateReady: true, StateDegraded: true,
		StateDraining: false, StateDrained: false, StateStopped: false, StateFailed: false, StateLost: false,
	} {
		if s.Serving() != serving {
			t.Errorf("%q serves: %t", s, s.Serving())
		}
	}
}

func TestNode(t *testing.T) {
	n := Node{Roles: []Role{RoleDecode}, Namespace: "a"}
	if n.Prefers(RolePrefill) || !n.Prefers(RoleDecode) || !(Node{}).Prefers(RoleEncode) {
		t.Error("preferences")
	}
	if !n.In("a") || n.In("b") || !(Node{}).In("b") {
		t.Error("namespaces")
	}
	for id, kind := range map[string]string{"cpu:0": "cpu", "gpu:12": "gpu", "cpu": "cpu", "": ""} {
		if got := (Device{ID: id}).Kind(); got != kind {
			t.Errorf("device %q is a %q", id, got)
		}
	}
}
