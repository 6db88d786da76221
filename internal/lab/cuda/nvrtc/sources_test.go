package nvrtc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/module"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
)

// compiler opens the pretended library.
func compiler(t *testing.T, options ...string) *nvrtc.Compiler {
	t.Helper()
	c, err := nvrtc.Open(pretended(t, options...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// image is a kernel's PTX of the same name.
func image(name, target string) module.Image {
	return module.Image{Name: name, PTX: []byte(".version 7.8\n.target " + target + "\n.visible .entry " + name + "() { ret; }\n"), Kernels: []string{name}}
}

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Sources take the place of the units that they are named after, and no others.
func TestSourcesReplaceImages(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{
		"product.cu": "a doubtful source .visible .entry product(", "by.h": "a header", "README": "neither",
	})
	s := nvrtc.Sources{Dir: dir, Macros: []string{"N=3", "FAST"}, Compiler: compiler(t)}
	builtin := []module.Image{image("product", "sm_80"), image("product", "sm_90a"), image("norm", "sm_80")}
	images, err := s.Images(t.Context(), driver.Properties{Major: 9}, builtin)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 2 || images[0].Name != "norm" || images[0].Origin != "" {
		t.Fatalf("images %+v", images)
	}
	got := images[1]
	if target, err := got.Target(); err != nil || target.String() != "sm_90a" || got.Name != "product" || !slices.Equal(got.Kernels, []string{"product"}) {
		t.Errorf("%s for %s has the kernels %q, %v", got.Name, target, got.Kernels, err)
	}
	if got.Origin != "NVRTC 12.4 -DN=3 -DFAST" || got.Warnings != "product.cu(1): warning: it is doubtful" {
		t.Errorf("made by %q with warnings %q", got.Origin, got.Warnings)
	}
	for _, want := range []string{"// by.h: a header\n", "// option -DN=3\n", "// option -DFAST\n"} {
		if !strings.Contains(string(got.PTX), want) {
			t.Errorf("the compiler did not get %q:\n%s", want, got.PTX)
		}
	}
	if len(builtin) != 3 || builtin[0].Name != "product" {
		t.Error("the images that were passed have changed")
	}
}

// The compiler makes the most of a device that it knows, and what runs on one that it
// does not.
func TestSourcesArchitecture(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"norm.cu": ".visible .entry norm("})
	of := func(c *nvrtc.Compiler, major, minor int) (string, error) {
		images, err := nvrtc.Sources{Dir: dir, Compiler: c}.Images(t.Context(), driver.Properties{Name: "Fake GPU", Major: major, Minor: minor}, nil)
		if err != nil {
			return "", err
		}
		target, err := images[0].Target()
		return target.String(), err
	}
	for _, c := range []struct {
		compiler     *nvrtc.Compiler
		major, minor int
		want         string
	}{
		{compiler(t), 8, 0, "sm_80"}, {compiler(t), 8, 6, "sm_80"}, {compiler(t), 8, 9, "sm_89"}, {compiler(t), 9, 0, "sm_90a"}, {compiler(t), 10, 0, "sm_90"},
		{compiler(t, "-DMAJOR=11"), 9, 0, "sm_90"}, {compiler(t, "-DWITHOUT_ARCHITECTURES"), 10, 3, "sm_103"},
	} {
		if got, err := of(c.compiler, c.major, c.minor); err != nil || got != c.want {
			t.Errorf("compute capability %d.%d: %s, %v, want %s", c.major, c.minor, got, err, c.want)
		}
	}
	if _, err := of(compiler(t), 7, 5); !errors.Is(err, module.ErrNoVariant) || !strings.Contains(err.Error(), "for Fake GPU: ") || !strings.Contains(err.Error(), "capability 7.5") {
		t.Errorf("for a device that is too old: %v", err)
	}
}

// Sources for compute capability 9.0 alone are compiled for no other device, and by older
// compilers for another target, which they are then said to be for.
func TestSourcesForOneDevice(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"norm.cu": ".visible .entry norm(", "norm_sm90a.cu": ".version 7.8\n.visible .entry fast_norm("})
	for _, c := range []struct {
		compiler     *nvrtc.Compiler
		major, minor int
		want         string
	}{
		{compiler(t), 9, 0, "sm_90a sm_90a"}, {compiler(t, "-DMAJOR=11"), 9, 0, "sm_90 sm_90a"}, {compiler(t), 8, 0, "sm_80"}, {compiler(t), 10, 0, "sm_90"},
	} {
		images, err := nvrtc.Sources{Dir: dir, Compiler: c.compiler}.Images(t.Context(), driver.Properties{Major: c.major, Minor: c.minor}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range images {
			target, err := i.Target()
			if err != nil {
				t.Error(err)
			}
			got = append(got, target.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("compute capability %d.%d, NVRTC %s: %q, want %s", c.major, c.minor, c.compiler.Version(), got, c.want)
		}
	}
}

// What is wrong with sources is told by file, for all of them.
func TestSourcesFail(t *testing.T) {
	c := compiler(t)
	good := ".visible .entry norm("
	for name, s := range map[string]struct {
		files  map[string]string
		macros []string
		want   []string
	}{
		"no sources":       {map[string]string{"by.h": ""}, nil, []string{"it has no .cu files"}},
		"two that fail":    {map[string]string{"a.cu": "wrong", "b.cu": "wrong", "c.cu": good}, nil, []string{"a.cu(1): error: it is wrong", "b.cu(1): error: it is wrong"}},
		"no kernels":       {map[string]string{"a.cu": ""}, nil, []string{"a.cu has no kernels"}},
		"too large":        {map[string]string{"a.cu": strings.Repeat(" ", 1<<20+1)}, nil, []string{"a.cu has 1048577 bytes"}},
		"no name of macro": {map[string]string{"a.cu": good}, []string{"=3"}, []string{`macro "=3"`}},
		"an option":        {map[string]string{"a.cu": good}, []string{"N --x"}, []string{`macro "N --x"`}},
	} {
		dir := write(t, t.TempDir(), s.files)
		_, err := nvrtc.Sources{Dir: dir, Macros: s.macros, Compiler: c}.Images(t.Context(), driver.Properties{Major: 9}, nil)
		for _, want := range append(s.want, dir) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	if _, err := (nvrtc.Sources{Dir: "/nowhere", Compiler: c}).Images(t.Context(), driver.Properties{Major: 9}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := write(t, t.TempDir(), map[string]string{"a.cu": good})
	if _, err := (nvrtc.Sources{Dir: dir, Compiler: c}).Images(ctx, driver.Properties{Major: 9}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("no time: %v", err)
	}
}
