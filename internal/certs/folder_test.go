package certs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFolder(t *testing.T) {
	c := newClock()
	f := made(t, c)
	server := issued(t, f, Request{Name: "gpu-1", Hosts: []string{"10.0.0.5", "gpu-1.example.com"}, Days: 30})
	client := issued(t, f, Request{Name: "client", Client: true, Days: 99999})
	if want := []string{"10.0.0.5", "127.0.0.1", "::1", "gpu-1", "gpu-1.example.com", "localhost"}; !slices.Equal(server.Hosts, want) || server.Kind != KindServer || !server.Valid {
		t.Errorf("%+v, want hosts %v", server, want)
	}
	if want := c.now().AddDate(0, 0, 30).Truncate(time.Second); !server.Ends.Equal(want) {
		t.Errorf("it ends at %s, want %s", server.Ends, want)
	}
	if want := c.now().AddDate(0, 0, 3650).Truncate(time.Second); client.Kind != KindClient || len(client.Hosts) != 0 || !client.Ends.Equal(want) {
		t.Errorf("%+v, want its end with that of the authority, %s", client, want)
	}
	files, err := os.ReadDir(f.Dir)
	if err != nil || len(files) != 6 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		if info, err := file.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file.Name(), info, err)
		}
	}
	all, err := f.List()
	if err != nil || len(all) != 3 || all[0].Kind != KindAuthority || all[1].Name != "client" || all[2].Name != "gpu-1" {
		t.Fatalf("%+v %v", all, err)
	}
	below := Folder{Dir: filepath.Join(t.TempDir(), "a", "b")}
	if _, err := below.Init(1); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(below.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v", info, err)
	}
	c.pass(31 * 24 * time.Hour)
	if all, err := f.List(); err != nil || all[2].Valid || !all[1].Valid || !all[0].Valid {
		t.Errorf("a month later: %+v %v", all, err)
	}
}

// Nothing is overwritten, except by renewal.
func TestCertificatesAreKept(t *testing.T) {
	c := newClock()
	f := made(t, c)
	issued(t, f, Request{Name: "a", Hosts: []string{"10.0.0.5"}})
	content := func() (all string) {
		for _, name := range []string{"ca.pem", "ca-key.pem", "a.pem", "a-key.pem"} {
			text, err := os.ReadFile(filepath.Join(f.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all += string(text)
		}
		return all
	}
	before := content()
	if _, err := f.Init(1); !errors.Is(err, ErrExists) {
		t.Errorf("a second authority: %v", err)
	}
	if _, err := f.Issue(Request{Name: "a", Days: 1}); !errors.Is(err, ErrExists) {
		t.Errorf("a second certificate: %v", err)
	}
	if content() != before {
		t.Error("files have changed")
	}
	c.pass(100 * 24 * time.Hour)
	renewed, err := f.Issue(Request{Name: "a", Renew: true, Days: 365, Hosts: []string{"10.0.0.6"}})
	if err != nil || !slices.Contains(renewed.Hosts, "10.0.0.5") || !slices.Contains(renewed.Hosts, "10.0.0.6") || !renewed.Ends.Equal(c.now().AddDate(0, 0, 365).Truncate(time.Second)) {
		t.Errorf("renewed: %+v %v", renewed, err)
	}
	if content() == before {
		t.Error("nothing was renewed")
	}
	if _, err := f.Issue(Request{Name: "b", Renew: true, Days: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("renewal of nothing: %v", err)
	}
	issued(t, f, Request{Name: "client", Client: true})
	if r, err := f.Issue(Request{Name: "client", Renew: true, Days: 1}); err != nil || r.Kind != KindClient {
		t.Errorf("renewed client: %+v %v", r, err)
	}
	// A key without its certificate is kept, too: it may belong to one elsewhere.
	if err := os.Remove(filepath.Join(f.Dir, "a.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Issue(Request{Name: "a", Days: 1}); !errors.Is(err, ErrExists) {
		t.Errorf("beside a key: %v", err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	c := newClock()
	f := made(t, c)
	for _, tc := range []struct {
		r    Request
		want string
	}{
		{Request{Name: "ca"}, "the name must be"},
		{Request{Name: "../x"}, "the name must be"},
		{Request{Name: "a-key"}, "the name must be"},
		{Request{Name: "c", Client: true, Hosts: []string{"a"}}, "a client has no hosts"},
		{Request{Name: "s", Hosts: []string{"a b"}}, `"a b" is neither`},
		{Request{Name: "s", Hosts: []string{"https://a"}}, "is neither"},
	} {
		tc.r.Days = 1
		if _, err := f.Issue(tc.r); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.r, err, tc.want)
		}
	}
	if _, err := (Folder{Dir: t.TempDir()}).List(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
	if _, err := (Folder{Dir: t.TempDir()}).Issue(Request{Name: "a", Days: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
	c.pass(3651 * 24 * time.Hour)
	if _, err := f.Issue(Request{Name: "late", Days: 1}); err == nil || !strings.Contains(err.Error(), "ended at") {
		t.Errorf("an authority that has ended: %v", err)
	}
	if files, err := filepath.Glob(filepath.Join(f.Dir, "*")); err != nil || len(files) != 2 {
		t.Errorf("files were left: %v %v", files, err)
	}
}
