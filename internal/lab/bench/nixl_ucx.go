package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

const (
	ucxRouteName    = "ucx"
	keyPerftest     = "percent_of_ucx_perftest"
	perftestProgram = "ucx_perftest"
	perftestLimit   = time.Minute // of one run
)

// ucxOptions returns the options of the transport under test: any network, within this
// host.
func ucxOptions() ucx.Options {
	return ucx.Options{AnyNetwork: true, Devices: []string{"lo"}, SilenceTimeout: perftestLimit} // both agents are here, and alive
}

// ucxRoutes returns the transports over UCX; note says why there are none.
func ucxRoutes() (routes []route, note string) {
	if err := ucx.Available(); err != nil {
		return nil, fmt.Sprintf("The transport over UCX was left out: %v.", err)
	}
	return []route{{ucxRouteName, []nixl.Op{nixl.Write, nixl.Read}, func() nixl.Transport { return ucx.New(ucxOptions()) }}}, ""
}

// perftest is UCX's own benchmark, run with the settings of the transport.
type perftest struct {
	path   string
	env    []string
	tests  []string           // its names of the tests
	byOp   map[nixl.Op]string // the test to compare an operation with
	failed error              // the first failure; nothing runs after it
}

// findPerftest looks for the program; note says why it does not run.
func findPerftest() (_ *perftest, note string) {
	if ucx.Available() != nil {
		return nil, ""
	}
	path, err := exec.LookPath(perftestProgram)
	if err != nil {
		return nil, perftestProgram + " is not installed here (Debian has it in ucx-utils): the transport over UCX stands beside no other program."
	}
	env, rdma := ucxOptions().Environment()
	p := &perftest{path: path, env: env, tests: []string{"ucp_am_bw"}}
	p.byOp = map[nixl.Op]string{nixl.Write: "ucp_am_bw", nixl.Read: "ucp_am_bw"} // as the transport works without devices
	if rdma {
		p.tests = []string{"ucp_put_bw", "ucp_get"}
		p.byOp = map[nixl.Op]string{nixl.Write: "ucp_put_bw", nixl.Read: "ucp_get"}
	}
	return p, ""
}

// note returns the remark for the report after all rounds.
func (p *perftest) note() string {
	if p == nil || p.failed == nil {
		return ""
	}
	return fmt.Sprintf("%s was given up: %v.", perftestProgram, p.failed)
}

// sample measures one shape: one message for each block, of the block's size.
func (p *perftest) sample(test string, shape nixlShape) func(context.Context) (Sample, error) {
	return func(ctx context.Context) (Sample, error) {
		if p.failed != nil {
			return Sample{}, nil
		}
		speed, err := p.run(ctx, test, shape.block, shape.count, shape.count*max(1, sampleBytes/shape.bytes()))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			p.failed = err
			return Sample{}, nil
		}
		return Sample{keyGBps: speed}, nil
	}
}

// run makes two processes send messages of a size and returns the GB/s.
func (p *perftest) run(ctx context.Context, test string, size, warmUp, messages int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, perftestLimit)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	server := p.command(ctx, "-p", port)
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	var end error // for readers of ended
	go func() {
		defer close(ended)
		end = server.Wait()
	}()
	defer func() {
		cancel() // it serves one client, which may have failed
		<-ended
	}()
	for {
		client := p.command(ctx, "127.0.0.1", "-p", port, "-t", test, "-s", strconv.Itoa(size), "-n", strconv.Itoa(messages), "-w", strconv.Itoa(warmUp), "-f", "-v")
		out, err := client.CombinedOutput()
		switch {
		case err == nil:
			return perftestSpeed(string(out))
		case ctx.Err() != nil:
			return 0, fmt.Errorf("%s: no result within %s", test, perftestLimit)
		case !bytes.Contains(out, []byte("refused")):
			return 0, fmt.Errorf("%s: %w: %s", test, err, strings.TrimSpace(string(out)))
		}
		select {
		case <-ended:
			return 0, fmt.Errorf("%s: its server ended: %w: %s", test, errors.Join(errNoServer, end), strings.TrimSpace(said.String()))
		case <-time.After(20 * time.Millisecond): // until it listens
		}
	}
}

var errNoServer = errors.New("before a client came")

func (p *perftest) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, args...)
	// The client must report why it fails; UCX in this process runs with its log
	// silenced.
	cmd.Env = append(append(os.Environ(), p.env...), "UCX_LOG_LEVEL=error")
	cmd.WaitDelay = stopStep
	return cmd
}

// perftestSpeed reads the comma-separated values at the end of the program's output,
// under a line with their names. They count MiB.
func perftestSpeed(out string) (gbps float64, err error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, name := range lines {
		if !strings.HasPrefix(name, "iterations,") || i+1 == len(lines) {
			continue
		}
		values := strings.Split(lines[i+1], ",")
		for column, name := range strings.Split(name, ",") {
			if name != "overall_bw" || column >= len(values) {
				continue
			}
			v, err := strconv.ParseFloat(strings.TrimSpace(values[column]), 64)
			if err != nil || v <= 0 {
				return 0, fmt.Errorf("bandwidth %q: %w", values[column], errNoFigure)
			}
			return v * (1 << 20) / 1e9, nil
		}
	}
	return 0, fmt.Errorf("%w: %s", errNoFigure, out)
}

// errNoFigure is returned for output without a result.
var errNoFigure = errors.New("no bandwidth in its output")

// freePort returns a port that is currently unused.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = ln.Close() }() // no connection was accepted
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}
