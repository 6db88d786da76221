package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/doctor"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

// find returns the finding of a name.
func find(t *testing.T, all []judge.Finding, name string) judge.Finding {
	t.Helper()
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no check %s", name)
	return judge.Finding{}
}

func TestDoctorOfACluster(t *testing.T) {
	w := newWorld(t)
	index := &cluster.KVIndex{Workers: []cluster.KVIndexWorker{{Worker: "worker-1", InstanceID: 7, Recent: &cluster.KVAccuracy{Predicted: 250, Found: 223, False: 27}}}}
	w.agent(fakeConfig{Index: index, Fail: map[string]string{"worker-3": "no memory"}, Backoff: time.Minute})
	if r := w.run("up", "--prefill", "1", "--decode", "2", "--no-wait"); r.code != exit.Accepted {
		t.Fatalf("%+v", r)
	}
	var d doctor.Diagnosis
	// A store that answers late once, on a busy machine, is no fault of the doctor's.
	clitest.Eventually(t, "the stores answer, two workers serve and one has failed", func() bool {
		r := w.run("doctor", "-o", "json")
		d = doctor.Diagnosis{}
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != exit.Failed {
			t.Fatalf("%v, %+v", err, r)
		}
		f := find(t, d.Checks, "workers")
		prompt := find(t, d.Checks, "etcd").Status == judge.OK && find(t, d.Checks, "nats").Status == judge.OK
		return prompt && f.Found == "2 of 3 workers serve dynctl-tiny; worker-3 failed: no memory"
	})
	for name, want := range map[string]judge.Finding{
		"etcd":          {Status: judge.OK, Found: "answers in "},
		"nats":          {Status: judge.OK, Found: "answers in "},
		"prefill-queue": {Status: judge.OK, Found: "JetStream works; 0 waiting, 0 in work, 0 dead letters"},
		"controller":    {Status: judge.OK, Found: "node-1 leads"},
		"nodes":         {Status: judge.Warn, Found: "v0.0.0-test on node-1; dynctl is "},
		"clocks":        {Status: judge.OK, Found: ""},
		"leases":        {Status: judge.OK, Found: "3 leases, all renewed; the soonest to end, "},
		"workers":       {Status: judge.Fail, Found: "", Fix: "dynctl logs worker-3"},
		"kv-index":      {Status: judge.Warn, Found: "worker-1: 10% of 250 predicted blocks were not there", Fix: "dynctl get index -o wide"},
		"paths":         {Status: judge.Skip, Found: "no two workers exchange KV blocks"},
		"models":        {Status: judge.OK, Found: "http://127.0.0.1:"},
		"answer":        {Status: judge.Fail, Found: "http://127.0.0.1:"},
		"port":          {Status: judge.Skip, Found: "the cluster's nodes are started elsewhere"},
	} {
		f := find(t, d.Checks, name)
		if f.Status != want.Status || !strings.HasPrefix(f.Found, want.Found) || want.Fix != "" && f.Fix != want.Fix || f.Status == judge.Fail && f.Fix == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if d.OK+d.Warned+d.Failed+d.Skipped != len(d.Checks) || d.Failed != 2 {
		t.Errorf("counts %+v", d)
	}
	if r := w.run("doctor", "-q"); r.stdout != "workers\nanswer\n" {
		t.Errorf("-q: %+v", r)
	}
}

func TestDoctorSeesWhoHasThePort(t *testing.T) {
	f := clitest.NewFrontend(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(f.URL, "http://"), ":")
	n, _ := strconv.Atoi(port)
	want := "this machine\tport\twarn\tlisten tcp 127.0.0.1:" + port + ": bind: address already in use; a frontend that serves tiny listens there\t" +
		fmt.Sprintf("dynctl up --port %d, or 0 for a free one\n", n%65535+1)
	clitest.Eventually(t, want, func() bool { // it is asked, and not for long
		r := runMain(t.Context(), options{env: []string{"HOME=/nowhere", "DYNCTL_STATE_DIR=" + t.TempDir()}}, "doctor", "--port", port)
		return strings.Contains(r.stdout, want)
	})
}
