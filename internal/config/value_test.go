package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

func TestParseSize(t *testing.T) {
	for _, tc := range []struct {
		text string
		want config.Size
		err  error
	}{
		{"8GiB", 8 << 30, nil},
		{"1.5GiB", 3 << 29, nil},
		{"512 MiB", 512 << 20, nil},
		{"10MB", 10_000_000, nil},
		{"3kB", 3000, nil},
		{"7B", 7, nil},
		{"0", 0, nil},
		{"9007199254740993B", 9007199254740993, nil}, // beyond a float64's precision
		{"7", 0, config.ErrNoUnit},
		{"1048576", 0, config.ErrNoUnit},
		{"8G", 0, config.ErrSyntax},
		{"GiB", 0, config.ErrSyntax},
		{"-1GiB", 0, config.ErrSyntax},
		{"1e3MiB", 0, config.ErrSyntax},
		{"0x10MiB", 0, config.ErrSyntax},
		{"99999999999TiB", 0, config.ErrSyntax},
		{"", 0, config.ErrSyntax},
	} {
		got, err := config.ParseSize(tc.text)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("ParseSize(%q) = %d, %v; want %d, %v", tc.text, got, err, tc.want, tc.err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"8GiB", "1.5MiB", "0", "7", "1.B", "9223372036854775807B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := config.ParseSize(text)
		if err != nil {
			return
		}
		if size < 0 {
			t.Fatalf("ParseSize(%q) = %d", text, size)
		}
		if again, err := config.ParseSize(size.String()); err != nil || again != size {
			t.Fatalf("ParseSize(%q) = %d, written %s, read back %d, %v", text, size, size, again, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for _, tc := range []struct {
		text string
		want time.Duration
		err  error
	}{
		{"30s", 30 * time.Second, nil},
		{"1h30m", 90 * time.Minute, nil},
		{"1.5s", 1500 * time.Millisecond, nil},
		{"0", 0, nil},
		{"0s", 0, nil},
		{"30", 0, config.ErrNoUnit},
		{"1.5", 0, config.ErrNoUnit},
		{"-5s", 0, config.ErrSyntax},
		{"soon", 0, config.ErrSyntax},
		{"", 0, config.ErrSyntax},
	} {
		got, err := config.ParseDuration(tc.text)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s, %v", tc.text, got, err, tc.want, tc.err)
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[config.Size]string{
		0: "0", 45 << 20: "45MiB", 1000: "1000B", 1 << 40: "1TiB", 1536: "1536B", 3 << 29: "1536MiB", math.MaxInt64: "9223372036854775807B",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d: got %s, want %s", int64(size), got, want)
		}
	}
}

// A secret must not come out by any of the usual ways of printing a configuration.
func TestSecretsStayHidden(t *testing.T) {
	const secret = "hunter2"
	cfg, origins, err := loadDynamod(t, nil, []string{"DYNAMOD_FRONTEND_API_KEY=" + secret, "NATS_AUTH_TOKEN=" + secret}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Frontend.APIKey.Reveal() != secret {
		t.Fatalf("Reveal returns %q", cfg.Frontend.APIKey.Reveal())
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("settings", "config", cfg, "key", cfg.Frontend.APIKey)
	encoded, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s", cfg, cfg, cfg, cfg.Frontend.APIKey)}
	for _, v := range origins.All() {
		shown = append(shown, v.Text(), fmt.Sprint(v.Plain()), fmt.Sprint(v))
	}
	for _, s := range shown {
		if strings.Contains(s, secret) {
			t.Errorf("the secret shows in %s", s)
		}
	}
	if v, _ := origins.Of("frontend.api_key"); v.Text() != "(hidden)" {
		t.Errorf("shown as %q", v.Text())
	}
	if v, _ := origins.Of("etcd.password"); v.Text() != "" {
		t.Errorf("an unset secret is shown as %q", v.Text())
	}
}

func TestPlainAndText(t *testing.T) {
	_, origins, err := loadDynamod(t, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]struct {
		text  string
		plain any
	}{
		"frontend.request_timeout": {"10m", "10m"},
		"drain.deadline":           {"1m", "1m"},
		"frontend.body_limit":      {"45MiB", "45MiB"},
		"frontend.port":            {"8000", 8000},
		"frontend.enabled":         {"true", true},
	} {
		v, ok := origins.Of(key)
		if !ok || v.Text() != want.text || v.Plain() != want.plain {
			t.Errorf("%s: text %q, plain %v; want %q, %v", key, v.Text(), v.Plain(), want.text, want.plain)
		}
	}
	if _, ok := origins.Of("no.such"); ok {
		t.Error("found a key that does not exist")
	}
}
