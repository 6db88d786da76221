package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestDoctorOfFrontends(t *testing.T) {
	o := &Options{Session: &session.Session{}, Timeout: time.Minute}
	topo := &cluster.Topology{Model: cluster.ModelSpec{Name: "tiny"}, Decode: 1}
	look := func(topo *cluster.Topology, urls ...string) []judge.Finding {
		v := client.View{Topology: topo}
		for i, u := range urls {
			v.Nodes = append(v.Nodes, cluster.Node{Name: fmt.Sprint("node-", i), FrontendURL: u})
		}
		return o.frontendFindings(t.Context(), v)
	}
	status := func(fs []judge.Finding) string {
		var out []string
		for _, f := range fs {
			out = append(out, f.Name+" "+f.Status)
		}
		return strings.Join(out, ", ")
	}
	gone := clitest.NewFrontend(t)
	gone.Close()
	impatient := func(frontend string) []judge.Finding {
		defer func(was time.Duration) { o.Timeout = was }(o.Timeout)
		o.Timeout = 2 * time.Second // of each check; only the last one takes so long
		return look(topo, frontend)
	}
	for _, tc := range []struct {
		name  string
		found []judge.Finding
		want  string
		text  string // of the last
	}{
		{"well", look(topo, clitest.NewFrontend(t, clitest.Says("", "Hi there.")).URL), "health ok, models ok, answer ok", "answers, ttft "},
		{"none", look(topo), "health skip, models skip, answer skip", "no node has an HTTP frontend"},
		{"not declared", look(nil, clitest.NewFrontend(t).URL), "health ok, models ok, answer skip", "no model is declared"},
		{"silent", impatient(clitest.NewFrontend(t, clitest.Hangs("Hi")).URL), "health ok, models ok, answer fail", "no answer in time"},
		{"busy", look(topo, clitest.NewFrontend(t, clitest.Refuses(503, "1", "", "No worker.")).URL), "health ok, models ok, answer fail", "No worker (status 503)"},
		{"locked", look(topo, clitest.NewFrontend(t, clitest.Refuses(401, "", "", "Key?")).URL), "health ok, models ok, answer warn", "asks for an API key: Key? (status 401)"},
		{"broken", look(topo, clitest.NewFrontend(t, clitest.Streams("data: {}\n\n")).URL), "health ok, models ok, answer fail", "the answer broke off"},
		{"other model", look(&cluster.Topology{Model: cluster.ModelSpec{Name: "big"}, Decode: 1}, clitest.NewFrontend(t, clitest.Refuses(404, "", "", "No.")).URL), "health ok, models fail, answer fail", "No (status 404)"},
		{"gone, and one that is well", look(topo, gone.URL, clitest.NewFrontend(t, clitest.Says("", "Hi.")).URL), "health fail, models fail, answer fail, health ok, models ok, answer ok", "answers"},
	} {
		last := tc.found[len(tc.found)-1]
		if got := status(tc.found); got != tc.want || !strings.Contains(last.Found, tc.text) {
			t.Errorf("%s: %s, %+v", tc.name, got, last)
		}
	}
}
