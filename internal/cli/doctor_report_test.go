package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
)

// unpack returns the files of an archive by name.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(b)
	}
}

// A report holds what a developer needs, and no secret, wherever one was written.
func TestDoctorReport(t *testing.T) {
	w := newWorld(t)
	planted := map[string]string{
		"API key": "key-of-the-frontend", "second API key": "another&key", "Hugging Face token": "hf_QqWwEeRrTtYyUuIiOo", "password of an address": "pass-of-nats",
		"token that only logs have": "hf_AaSsDdFfGgHhJjKkLl", "join token": "dynctl1:eyJhIjoxfQ", "bearer": "abc.def.ghi", "private key": "MIIEvQIBADAN", "key in a log": "q1w2e3r4", "seed of an NKey": "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY", "argument": "zxcvbn99",
		"password with an at sign": "half@way",
	}
	log := strings.Repeat("a line that is left out\n", 20000) + "start key-of-the-frontend another&key hf_QqWwEeRrTtYyUuIiOo hf_AaSsDdFfGgHhJjKkLl\n" +
		"nats://user:pass-of-nats@10.0.0.1:4222 Authorization: Bearer abc.def.ghi api_key=q1w2e3r4 --frontend-api-key zxcvbn99 http://u:half@way@h/ dynctl1:eyJhIjoxfQ SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n" +
		"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----\nthe end\n"
	w.agent(fakeConfig{Logs: map[string]string{"": log, "worker-1": "worker-1 began\n"}})
	w.up(0, 1)
	name := filepath.Join(t.TempDir(), "bug.tar.gz")
	env := []string{"DYNAMOD_FRONTEND_API_KEY=key-of-the-frontend,another&key", "HF_TOKEN=hf_QqWwEeRrTtYyUuIiOo", "NATS_AUTH_NOTE=pass-of-nats"}
	r := w.with(t.Context(), options{env: env}, "doctor", "--report="+name)
	clitest.Has(t, "note", r.stderr, "report: "+name+"; look into it before you publish it")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Size() > 1<<20 {
		t.Errorf("mode %v, %d bytes", info.Mode(), info.Size())
	}
	files := unpack(t, name)
	for _, want := range []string{"version.json", "doctor.json", "settings.json", "cluster.json", "workers.json", "history.json", "events.json", "notes.txt", "logs/node-1/dynamod.log", "logs/node-1/worker-1.log"} {
		if files["dynctl-report/"+want] == "" {
			t.Errorf("%s is missing or empty; notes:\n%s", want, files["dynctl-report/notes.txt"])
		}
	}
	clitest.Has(t, "log", files["dynctl-report/logs/node-1/dynamod.log"], "nats://(hidden)@10.0.0.1:4222", "the end\n")
	clitest.Has(t, "findings", files["dynctl-report/doctor.json"], `"name": "etcd"`)
	clitest.Has(t, "topology", files["dynctl-report/cluster.json"], "dynctl-tiny")
	for file, text := range files {
		if len(text) > 300<<10 {
			t.Errorf("%s has %d bytes", file, len(text))
		}
		for what, secret := range planted {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s: the %s in %q", file, what, text[max(0, i-40):min(len(text), i+60)])
			}
		}
	}
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if r := w.run("doctor", "--report="+name); r.code != exit.Failed || !strings.Contains(r.stderr, "cannot write the report") {
		t.Errorf("a file was replaced: %+v", r)
	}
	if after, err := os.ReadFile(name); err != nil || !slices.Equal(before, after) {
		t.Errorf("the report has changed: %v", err)
	}
}
