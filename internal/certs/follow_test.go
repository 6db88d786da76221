package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// made is a folder with an authority.
func made(t *testing.T, c *clock) Folder {
	t.Helper()
	f := Folder{Dir: t.TempDir(), Now: c.now}
	if _, err := f.Init(3650); err != nil {
		t.Fatal(err)
	}
	return f
}

func issued(t *testing.T, f Folder, r Request) Certificate {
	t.Helper()
	if r.Days == 0 {
		r.Days = 365
	}
	c, err := f.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// settings name the files of a certificate.
func settings(f Folder, c Certificate) config.TLSFiles {
	s := config.EtcdClient{CAFile: f.certFile(authorityName), CertFile: c.CertFile, KeyFile: c.KeyFile}
	return s.TLSFiles()
}

// copied is the certificate under names of its own, which others can replace.
func copied(t *testing.T, f Folder, c Certificate) config.TLSFiles {
	t.Helper()
	dir := t.TempDir()
	s := config.EtcdClient{CAFile: filepath.Join(dir, "a"), CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k")}.TLSFiles()
	replace(t, s, f, c)
	return s
}

func replace(t *testing.T, s config.TLSFiles, f Folder, c Certificate) {
	t.Helper()
	for to, from := range map[string]string{s.CA.Value: f.certFile(authorityName), s.Cert.Value: c.CertFile, s.Key.Value: c.KeyFile} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func following(t *testing.T, s config.TLSFiles, c *clock, log io.Writer) *Follower {
	t.Helper()
	f, err := follow(s, slog.New(slog.NewTextHandler(log, nil)), c.now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// meet connects a client to a server and returns the names in the server's certificate.
func meet(t *testing.T, client, server *tls.Config) (string, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			served <- err
			return
		}
		defer c.Close()
		_, err = c.Write([]byte{1}) // with TLS 1.3, a client learns only then that it was refused
		served <- err
	}()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: client}
	c, err := d.DialContext(context.Background(), "tcp", ln.Addr().String())
	name := ""
	if err == nil {
		defer c.Close()
		name = c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	return name, errors.Join(err, <-served)
}

// New connections use what the files hold, and what cannot be used leaves everything as it
// was; the log tells each once.
func TestFilesAreFollowed(t *testing.T) {
	c := newClock()
	var log bytes.Buffer
	f := made(t, c)
	one, two := issued(t, f, Request{Name: "one"}), issued(t, f, Request{Name: "two"})
	s := copied(t, f, one)
	follower := following(t, s, c, &log)
	server := follower.Server()
	client := following(t, settings(f, issued(t, f, Request{Name: "client", Client: true})), c, &log)
	served := func(want string) {
		t.Helper()
		if got, err := meet(t, client.TLS(), server); err != nil || got != want {
			t.Fatalf("the server is %q, %v; want %q", got, err, want)
		}
	}
	told := func(text string, n int) {
		t.Helper()
		if got := strings.Count(log.String(), text); got != n {
			t.Errorf("the log says %q %d times, want %d:\n%s", text, got, n, log.String())
		}
	}
	served("one")
	replace(t, s, f, two)
	served("one") // at most one look in a second
	c.pass(lookEvery)
	served("two")
	told("a changed certificate is used", 1)

	if err := os.WriteFile(s.Key.Value, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.pass(lookEvery)
		served("two")
	}
	told("cannot be used", 1)
	if p := follower.Problem(); !strings.Contains(p, "etcd.cert_file cannot be used, the one before ends at "+two.Ends.Format(time.RFC3339)) {
		t.Errorf("problem %q", p)
	}
	if err := os.Remove(s.Cert.Value); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.pass(lookEvery)
		served("two")
	}
	told("cannot be used", 2)
	told("no such file", 1)
	replace(t, s, f, two) // as it was
	follower.Look()
	if p := follower.Problem(); p != "" {
		t.Errorf("problem %q", p)
	}
	if err := os.Remove(s.Key.Value); err != nil {
		t.Fatal(err)
	}
	follower.Look()
	if follower.Problem() == "" {
		t.Error("a missing key is no problem")
	}
	replace(t, s, f, one)
	follower.Look()
	told("a changed certificate is used", 2)
	told("cannot be used", 3)
	replace(t, s, f, two)
	follower.Look()
	if p := follower.Problem(); p != "" {
		t.Errorf("problem %q", p)
	}
	replace(t, s, f, one)
	follower.Look()
	served("one")
	told("a changed certificate is used", 4)
	told("cannot be used", 3)
}

// Both sides follow the authorities, too.
func TestAuthoritiesAreFollowed(t *testing.T) {
	c := newClock()
	f, g := made(t, c), made(t, c)
	sides := func(f Folder) (server, client Certificate) {
		return issued(t, f, Request{Name: "server"}), issued(t, f, Request{Name: "client", Client: true})
	}
	server, client := sides(f)
	nextServer, nextClient := sides(g)
	ss, cs := copied(t, f, server), copied(t, f, client)
	serving, asking := following(t, ss, c, io.Discard), following(t, cs, c, io.Discard)
	listener := serving.Server()
	if _, err := meet(t, asking.TLS(), listener); err != nil {
		t.Fatal(err)
	}
	replace(t, ss, g, nextServer)
	c.pass(lookEvery)
	if _, err := meet(t, asking.TLS(), listener); err == nil {
		t.Error("a server of an unknown authority was trusted")
	}
	replace(t, cs, g, nextClient)
	c.pass(lookEvery)
	if _, err := meet(t, asking.TLS(), listener); err != nil {
		t.Error(err)
	}
	// A certificate of the old authority is worth nothing any more.
	old := following(t, settings(f, client), c, io.Discard).TLS()
	old.RootCAs = asking.TLS().RootCAs
	if _, err := meet(t, old, listener); err == nil {
		t.Error("a client of the old authority was admitted")
	}
	old.Certificates = nil
	if _, err := meet(t, old, listener); err == nil {
		t.Error("a client without a certificate was admitted")
	}
}

// A certificate that is not valid yet waits until it is, and one that has ended replaces
// only what has ended, too.
func TestTimesCount(t *testing.T) {
	c := newClock()
	f := made(t, c)
	one := issued(t, f, Request{Name: "one", Days: 10})
	c.pass(48 * time.Hour)
	later := issued(t, f, Request{Name: "later", Days: 3})
	c.pass(-48 * time.Hour)
	s := copied(t, f, one)
	var log bytes.Buffer
	follower := following(t, s, c, &log)
	uses := func(want string) {
		t.Helper()
		follower.Look()
		if got := follower.TLS().Certificates[0].Leaf.Subject.CommonName; got != want {
			t.Errorf("it uses %s, want %s:\n%s", got, want, log.String())
		}
	}
	replace(t, s, f, later)
	uses("one")
	c.pass(47 * time.Hour) // it began an hour before it was made
	uses("later")
	if n := strings.Count(log.String(), "valid from"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	replace(t, s, f, one)
	c.pass(9 * 24 * time.Hour) // both have ended
	uses("one")
	replace(t, s, f, issued(t, f, Request{Name: "new"}))
	uses("new")
	replace(t, s, f, one)
	uses("new")
}

func TestEndsAreAnnounced(t *testing.T) {
	c := newClock()
	f := made(t, c)
	const day = 24 * time.Hour
	for _, tc := range []struct {
		days  int
		after time.Duration
		want  string // in the problem; empty for none
	}{
		{365, 350 * day, ""},
		{365, 352 * day, "ends at"},
		{365, 366 * day, "ended at"},
		{10, 7 * day, ""}, // a fifth of its life is left
		{10, 9 * day, "ends at"},
	} {
		follower := following(t, settings(f, issued(t, f, Request{Name: "x", Days: tc.days})), c, io.Discard)
		c.pass(tc.after)
		if got := follower.Problem(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%d days, after %s: %q, want %q", tc.days, tc.after, got, tc.want)
		}
		c.pass(-tc.after)
		for _, path := range []string{f.certFile("x"), f.keyFile("x")} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The authorities end later than the certificates they sign, so that alone they count.
	s := config.EtcdClient{CAFile: f.certFile(authorityName)}.TLSFiles()
	follower := following(t, s, c, io.Discard)
	if want := c.now().AddDate(0, 0, 3650).Truncate(time.Second); !follower.Ends().Equal(want) || follower.Problem() != "" {
		t.Errorf("ends %s, want %s; %s", follower.Ends(), want, follower.Problem())
	}
	c.pass(3640 * day)
	if p := follower.Problem(); !strings.Contains(p, "etcd.ca_file ends at") {
		t.Errorf("problem %q", p)
	}
	if follower := following(t, config.TLSFiles{}, c, io.Discard); !follower.Ends().IsZero() || follower.Problem() != "" {
		t.Errorf("without files: %s %s", follower.Ends(), follower.Problem())
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	c := newClock()
	f := made(t, c)
	one, two := issued(t, f, Request{Name: "one"}), issued(t, f, Request{Name: "two"})
	text := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	absent := filepath.Join(t.TempDir(), "absent.pem")
	for want, e := range map[string]config.EtcdClient{
		"etcd.ca_file: open":                          {CAFile: absent},
		"etcd.ca_file: no certificate":                {CAFile: one.KeyFile},
		"etcd.key_file: open":                         {CertFile: one.CertFile, KeyFile: absent},
		"etcd.cert_file and etcd.key_file: tls":       {CertFile: one.CertFile, KeyFile: two.KeyFile},
		"etcd.cert_file and etcd.key_file: tls: f":    {CertFile: "-----BEGIN X", KeyFile: two.KeyFile},
		"etcd.cert_file: open " + absent + ": no suc": {CertFile: absent, KeyFile: absent},
	} {
		if _, err := Follow(e.TLSFiles(), slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	inline := config.EtcdClient{CAFile: text(f.certFile(authorityName)), CertFile: text(one.CertFile), KeyFile: text(one.KeyFile)}
	var all Followers
	follower, err := all.Follow(inline.TLSFiles(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := meet(t, follower.TLS(), follower.Server()); err != nil {
		t.Error(err)
	}
	if got := all.All(); len(got) != 1 || got[0] != follower || follower.Section() != "etcd" {
		t.Errorf("%v", got)
	}
	if _, err := (*Followers)(nil).Follow(inline.TLSFiles(), slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// Connections begin at once while others look at the files.
func TestManyConnectionsAtOnce(t *testing.T) {
	c := newClock()
	f := made(t, c)
	one, two := issued(t, f, Request{Name: "one"}), issued(t, f, Request{Name: "two"})
	s := copied(t, f, one)
	follower := following(t, s, c, io.Discard)
	replace(t, s, f, two)
	c.pass(lookEvery)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if follower.TLS().Certificates[0].Leaf == nil || follower.Ends().IsZero() {
					t.Error("no certificate")
				}
				_ = follower.Problem()
				c.pass(lookEvery)
			}
		})
	}
	wg.Wait()
	if got := follower.TLS().Certificates[0].Leaf.Subject.CommonName; got != "two" {
		t.Errorf("it uses %s", got)
	}
}
