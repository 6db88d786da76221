package bench

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

// perftestText is the output of ucx_perftest 1.13.
const perftestText = `iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 300,1.302,566.454,566.454,110.34,112.50,1765,1765
`

func TestPerftestSpeed(t *testing.T) {
	if v, err := perftestSpeed("[123] some warning\n" + perftestText); err != nil || v != 112.5*(1<<20)/1e9 {
		t.Errorf("got %g, %v", v, err)
	}
	for _, bad := range []string{
		"", "iterations,overall_bw", "iterations,overall_bw\n", "iterations,avg_bw\n3,4", "iterations,avg_bw,overall_bw\n3,4",
		strings.Replace(perftestText, "112.50", "0.00", 1), strings.Replace(perftestText, "112.50", "fast", 1),
	} {
		if v, err := perftestSpeed(bad); !errors.Is(err, errNoFigure) {
			t.Errorf("of %q: %g, %v", bad, v, err)
		}
	}
}

// usePerftest puts a program of that name before all others: the fake of this file.
// How it shall fail, if it shall, is a variable of its environment.
func usePerftest(t *testing.T, failure string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, perftestProgram)); err != nil {
		t.Skipf("the fake of %s is a link: %v", perftestProgram, err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(failureVariable, failure)
}

const (
	failureVariable = "DYNCTL_FAKE_PERFTEST"
	serverEnds      = "server ends"
	clientFails     = "client fails"
)

// fakePerftest is the other program, as far as its processes go: a server takes one
// client, which gives up where none listens. It moves nothing.
func fakePerftest(args []string) int {
	host := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		host, args = args[0], args[1:]
	}
	f := flag.NewFlagSet(perftestProgram, flag.ContinueOnError)
	port, test, size := f.String("p", "", ""), f.String("t", "", ""), f.Int("s", 0, "")
	n, _, _, _ := f.Int("n", 0, ""), f.Int("w", 0, ""), f.Bool("f", false, ""), f.Bool("v", false, "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if host == "" {
		if os.Getenv(failureVariable) == serverEnds {
			fmt.Println("no such device")
			return 1
		}
		ln, err := net.Listen("tcp", "127.0.0.1:"+*port)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(perftestLimit))
		_, _ = ln.Accept() // the client says nothing
		return 0
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(host, *port))
	if err != nil {
		if os.Getenv("UCX_LOG_LEVEL") == "error" {
			fmt.Println("client failed. connect() failed: Connection refused")
		}
		return 255
	}
	_ = conn.Close()
	if os.Getenv(failureVariable) == clientFails || *test == "" || *size*(*n) == 0 || os.Getenv("UCX_TLS") == "" {
		fmt.Println("no such test")
		return 1
	}
	fmt.Print(perftestText)
	return 0
}

func TestPerftest(t *testing.T) {
	if err := ucx.Available(); err != nil {
		t.Skip(err)
	}
	for _, tc := range []struct{ failure, said string }{
		{"", ""}, {serverEnds, "its server ended: before a client came"}, {clientFails, "no such test"},
	} {
		t.Run("failure "+tc.failure, func(t *testing.T) {
			usePerftest(t, tc.failure)
			t.Setenv("UCX_LOG_LEVEL", "fatal") // as where UCX is loaded
			p, note := findPerftest()
			if p == nil {
				t.Fatal(note)
			}
			for range 2 { // after a failure nothing runs
				s, err := p.sample(p.tests[0], nixlShape{64 << 10, 3})(t.Context())
				if err != nil || (len(s) == 1) != (tc.failure == "") {
					t.Errorf("got %v, %v", s, err)
				}
			}
			if note := p.note(); (note == "") != (tc.said == "") || !strings.Contains(note, tc.said) {
				t.Errorf("the report says %q", note)
			}
		})
	}
}

// Where the program is not installed the report says so.
func TestNoPerftest(t *testing.T) {
	if err := ucx.Available(); err != nil {
		t.Skip(err)
	}
	t.Setenv("PATH", t.TempDir())
	if p, note := findPerftest(); p != nil || !strings.Contains(note, "not installed") || p.note() != "" {
		t.Errorf("got %v, %q", p, note)
	}
}
