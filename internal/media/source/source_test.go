package source

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func guard(t *testing.T, cfg Config) *Guard {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestDataURLs(t *testing.T) {
	g := guard(t, Config{MaxBytes: 9})
	enc := base64.StdEncoding.EncodeToString
	for _, tc := range []struct {
		url, want string
		err       error
	}{
		{"data:image/png;base64," + enc([]byte("12345678")), "12345678", nil},
		{"DATA:;base64," + strings.TrimRight(enc([]byte("1234567")), "="), "1234567", nil},
		{"data:image/png;BASE64," + strings.ReplaceAll(enc([]byte("1234567")), "=", "%3D"), "1234567", nil},
		{"data:image/png;base64," + enc([]byte("123456789")), "123456789", nil},
		{"data:image/png;base64," + enc([]byte("1234567890")), "", ErrTooLarge},
		{"data:image/png;base64," + strings.Repeat("A", 1000), "", ErrTooLarge},
		{"data:image/png;base64,###", "", ErrForm},
		{"data:image/png,12345678", "", ErrForm},
		{"data:", "", ErrForm},
	} {
		got, err := g.Get(t.Context(), tc.url)
		if string(got.Data) != tc.want || !errors.Is(err, tc.err) || got.Embeddings {
			t.Errorf("%s: %q %v", tc.url, got.Data, err)
		}
	}
}

func TestFormsOfURLs(t *testing.T) {
	g := guard(t, Config{})
	for _, u := range []string{"", "x.png", "../x", "http://example.com/x.png", "ftp://example.com/x", "https://", "https://u:p@example.com/x", "file://elsewhere/tmp/x", "https://exa mple/", "javascript:1"} {
		if _, err := g.Get(t.Context(), u); !errors.Is(err, ErrForm) || errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", u, err)
		}
	}
}

// Files lie in the directory, or are refused with the same words whatever the reason.
func TestFiles(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "media"), filepath.Join(base, "secret.pt")
	for path, text := range map[string]string{
		"media/x.pt": "inside", "media/deep/y.png": "deeper", "media/large": "1234567890", "secret.pt": "secret", "media2/z": "neighbor",
	} {
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"media/out": outside, "media/up": "../secret.pt", "media/folder": base, "media/in": "x.pt", "alias": dir, "media/loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Skip("no symbolic links here: ", err)
		}
	}
	fifo(t, filepath.Join(dir, "pipe"))
	for _, given := range []string{dir, filepath.Join(base, "alias")} {
		g := guard(t, Config{Directory: given, MaxBytes: 9})
		for path, want := range map[string]string{
			"x.pt": "inside", "deep/y.png": "deeper", "deep/../x.pt": "inside", "in": "inside", "./x.pt": "inside",
		} {
			for _, from := range []string{given, dir} {
				for _, prefix := range []string{"", "file://", "file://localhost"} {
					got, err := g.Get(t.Context(), prefix+from+"/"+path)
					if string(got.Data) != want || err != nil || got.Embeddings != strings.HasSuffix(path, ".pt") {
						t.Errorf("%s%s/%s: %q %v %v", prefix, from, path, got.Data, got.Embeddings, err)
					}
				}
			}
		}
		for _, path := range []string{
			outside, dir + "/../secret.pt", dir + "/out", dir + "/up", dir + "/folder/secret.pt", dir + "/folder/media/x.pt", dir, dir + "/deep", dir + "/pipe", dir + "/none", dir + "/loop",
			dir + "/large", dir + "2/z", "/etc/passwd", "/dev/zero", "/proc/self/environ", "/", dir + "/x.pt/y", dir + "/x\x00.pt",
		} {
			got, err := g.Get(t.Context(), path)
			if !errors.Is(err, ErrRefused) || err.Error() != ErrRefused.Error() || got.Data != nil || Reason(err).Error() == err.Error() {
				t.Errorf("%s: %q, %v (%v)", path, got.Data, err, Reason(err))
			}
		}
	}
	few := guard(t, Config{Directory: dir, OnlyEmbeddings: true})
	if got, err := few.Get(t.Context(), dir+"/x.pt"); err != nil || string(got.Data) != "inside" {
		t.Errorf("%v", Reason(err))
	}
	if _, err := few.Get(t.Context(), dir+"/deep/y.png"); !errors.Is(err, ErrRefused) || !strings.Contains(Reason(err).Error(), "only files of embeddings") {
		t.Errorf("%v", Reason(err))
	}
	none := guard(t, Config{})
	if _, err := none.Get(t.Context(), dir+"/x.pt"); !errors.Is(err, ErrRefused) || !strings.Contains(Reason(err).Error(), "no files") {
		t.Errorf("%v", Reason(err))
	}
	if _, err := New(Config{Directory: filepath.Join(base, "none")}); err == nil {
		t.Error("a directory that does not exist")
	}
}

func TestWebServers(t *testing.T) {
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/x.png", "/x.safetensors":
			if r.Header.Get("Accept-Encoding") != "" && r.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("asks for %q", r.Header.Get("Accept-Encoding"))
			}
			_, _ = w.Write([]byte("picture"))
		case "/to":
			http.Redirect(w, r, srv.URL+"/x.png", http.StatusFound)
		case "/round":
			http.Redirect(w, r, srv.URL+"/round", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		case "/zipped":
			w.Header().Set("Content-Encoding", "gzip")
		case "/large":
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write([]byte("x"))
		case "/slow":
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	g := guard(t, Config{MaxBytes: 9, Private: true, Timeout: 2 * time.Second})
	for path, want := range map[string]error{
		"/x.png": nil, "/x.safetensors": nil, "/to": nil, "/round": ErrRefused, "/file": ErrRefused, "/endless": ErrTooLarge, "/zipped": ErrRefused, "/large": ErrTooLarge, "/none": ErrRefused,
	} {
		got, err := g.Get(t.Context(), srv.URL+path)
		if !errors.Is(err, want) || (err == nil) != (string(got.Data) == "picture") || got.Embeddings != strings.HasSuffix(path, ".safetensors") {
			t.Errorf("%s: %q %v (%v)", path, got.Data, err, Reason(err))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Get(ctx, srv.URL+"/slow"); !errors.Is(err, ErrRefused) || !errors.Is(Reason(err), context.DeadlineExceeded) {
		t.Errorf("slow: %v (%v)", err, Reason(err))
	}

	// By default a server of this machine is out of reach, by any name.
	tls := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer tls.Close()
	strict := guard(t, Config{})
	for _, u := range []string{tls.URL, strings.Replace(tls.URL, "127.0.0.1", "localhost", 1), strings.Replace(tls.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		if _, err := strict.Get(t.Context(), u+"/x.png"); !errors.Is(err, ErrRefused) || !errors.Is(Reason(err), errPrivate) || err.Error() != ErrRefused.Error() {
			t.Errorf("%s: %v (%v)", u, err, Reason(err))
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8:443": true, "1.1.1.1:443": true, "[2606:4700::1111]:443": true,
		"127.0.0.1:443": false, "127.8.9.1:1": false, "[::1]:443": false, "[::ffff:10.0.0.1]:443": false, "10.1.2.3:443": false, "172.16.0.1:443": false, "172.31.255.255:1": false,
		"192.168.0.1:443": false, "169.254.169.254:80": false, "[fe80::1]:443": false, "[fe80::1%eth0]:443": false, "[fc00::1]:443": false, "0.0.0.0:443": false, "[::]:443": false,
		"100.64.0.1:443": false, "192.0.0.8:1": false, "198.18.0.1:443": false, "203.0.113.9:443": false, "224.0.0.1:443": false, "[ff02::1]:443": false, "255.255.255.255:1": false, "240.0.0.1:1": false,
		"[64:ff9b::a00:1]:443": false, "[2002:a00:1::]:443": false, "[2001:db8::1]:443": false, "[::7f00:1]:443": false, "nonsense": false,
	} {
		if err := public(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
