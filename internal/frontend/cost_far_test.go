package frontend

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

var quiet = slog.New(slog.DiscardHandler)

// farEnv, set to the secret of the request plane, makes a test process the worker and the
// clients of a frontend in another process.
const farEnv = "FRONTEND_TEST_FAR_SIDE"

// far is the other process, seen from that of the frontend.
type far struct {
	b      *testing.B
	in     io.Writer
	out    *bufio.Scanner
	addr   string // of its request plane
	server requestplane.Server
	client requestplane.Client
}

func farKey(secret string) handshake.Key {
	sum := sha256.Sum256([]byte(secret))
	return handshake.NewKey(sum[:])
}

// startFar starts the other process, and a request plane to it. The server is for what the
// frontend's process registers itself.
func startFar(b *testing.B) *far {
	secret := rand.Text()
	key := farKey(secret)
	server, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: key})
	if err != nil {
		b.Fatal(err)
	}
	fr := &far{b: b, server: server, client: requestplane.NewClient(requestplane.ClientConfig{Key: key})}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), farEnv+"="+secret)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := orphan.Start(cmd); err != nil {
		b.Fatal(err)
	}
	late := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() })
	b.Cleanup(func() {
		late.Stop()
		_ = in.Close() // ends it
		_ = cmd.Wait()
		_ = fr.client.Close()
		_ = server.Close()
	})
	fr.in, fr.out = in, bufio.NewScanner(out)
	fr.addr = fr.answer().Addr
	return fr
}

// say sends a command and returns the processor time that it took there.
func (fr *far) say(c farCommand) farAnswer {
	fr.b.Helper()
	if err := json.NewEncoder(fr.in).Encode(c); err != nil {
		fr.b.Fatal(err)
	}
	return fr.answer()
}

func (fr *far) answer() (a farAnswer) {
	fr.b.Helper()
	if !fr.out.Scan() {
		fr.b.Fatalf("the other process has ended: %v", fr.out.Err())
	}
	if err := json.Unmarshal(fr.out.Bytes(), &a); err != nil {
		fr.b.Fatal(err)
	}
	if a.Error != "" {
		fr.b.Fatal(a.Error)
	}
	return a
}

// farSide is the other process: a worker's endpoints, and clients.
type farSide struct {
	server  requestplane.Server
	client  http.Client
	arrived chan struct{} // a client has read a token

	mu    sync.Mutex
	load  farLoad
	ready chan struct{}            // closed when all streams wait for their first step
	turns map[uint32]chan struct{} // by the first token of the prompt: a step may begin
}

// runFarSide obeys commands until its input ends.
func runFarSide(secret string) error {
	server, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: farKey(secret)})
	if err != nil {
		return err
	}
	defer server.Close()
	s := &farSide{server: server, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(farAnswer{Addr: server.Addr()}); err != nil {
		return err
	}
	for in := json.NewDecoder(os.Stdin); ; {
		var c farCommand
		if err := in.Decode(&c); err != nil {
			return nil //nolint:nilerr // the end
		}
		var a farAnswer
		if err := s.obey(c, &a); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func (s *farSide) obey(c farCommand, a *farAnswer) error {
	if c.Load != nil {
		begin := cpuTime()
		err := s.run(*c.Load)
		a.CPU = cpuTime() - begin
		return err
	}
	files := &fake{files: testFiles()}
	_, err := s.server.Handle(c.Worker+"/"+cluster.EndpointModelFiles, files.serveFiles)
	_, err2 := s.server.Handle(c.Worker+"/"+cluster.EndpointGenerate, s.generate)
	return errors.Join(err, err2)
}

// generate is the worker's endpoint.
func (s *farSide) generate(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.PreprocessedRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	s.mu.Lock()
	var turn chan struct{}
	if !s.load.Burst {
		turn = make(chan struct{}, 1)
		s.turns[req.TokenIDs[0]] = turn
		if len(s.turns) == s.load.Streams {
			close(s.ready)
		}
	}
	s.mu.Unlock()
	step := func(uint32) {
		if turn == nil {
			return
		}
		select {
		case <-turn:
		case <-ctx.Done():
		}
	}
	return babble(step)(ctx, req, func(o protocol.EngineOutput) error { return send(&o) })
}

// run sends requests and waits for their answers.
func (s *farSide) run(l farLoad) error {
	s.mu.Lock()
	s.load, s.turns, s.ready, s.arrived = l, map[uint32]chan struct{}{}, make(chan struct{}), make(chan struct{}, l.Streams)
	s.mu.Unlock()
	errs := make(chan error, l.Streams)
	for i := range l.Streams {
		go func() { errs <- s.stream(l, i) }()
	}
	if !l.Burst {
		select {
		case <-s.ready:
		case err := <-errs:
			return fmt.Errorf("a stream has ended early: %w", err)
		}
		for range l.Tokens {
			for _, turn := range s.turns {
				turn <- struct{}{}
			}
			for range l.Streams {
				<-s.arrived
			}
		}
	}
	var all error
	for range l.Streams {
		all = errors.Join(all, <-errs)
	}
	return all
}

// stream sends the requests of one client, one after the other.
func (s *farSide) stream(l farLoad, i int) error {
	raw := l.body(i)
	for range l.Requests {
		resp, err := s.client.Post(l.URL+"/v1/completions", "application/json", bytes.NewReader(raw))
		if err != nil {
			return err
		}
		err = s.read(l, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d: %w", resp.StatusCode, err)
		}
	}
	return nil
}

func (s *farSide) read(l farLoad, r io.Reader) error {
	events, lines := 0, bufio.NewScanner(r)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte("data: {")) {
			if events++; !l.Burst {
				s.arrived <- struct{}{}
			}
		}
	}
	if err := lines.Err(); err != nil || l.Whole {
		return err
	}
	if events != l.Tokens {
		return fmt.Errorf("%d events, want %d", events, l.Tokens)
	}
	return nil
}
