package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// source is the origin of a version of CUDA. Its packages are not free software, so that most
// machines do not list them.
type source struct {
	dir      string // in the cache
	release  string // of Debian
	packages []string
}

// compiler has NVRTC and ptxas of CUDA 11.8: another version makes other PTX.
var compiler = source{"cuda-11.8", "bookworm", []string{"libnvrtc11.2", "libnvrtc-builtins11.8", "nvidia-cuda-toolkit"}}

// laterAssembler has ptxas of CUDA 12.4, which knows sm_90a.
var laterAssembler = source{"cuda-12.4", "trixie", []string{"nvidia-cuda-toolkit"}}

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// fetch returns a directory with the unpacked packages. They are downloaded once, 100 MB,
// by apt with lists of its own; nothing is installed.
func fetch(ctx context.Context, from source) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "dynctl-ci", from.dir)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	mirror, err := debianMirror(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "cuda-")
	if err != nil {
		return "", err
	}
	defer remove(work)
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "tree"} {
		if err := os.MkdirAll(filepath.Join(work, sub), 0o755); err != nil {
			return "", err
		}
	}
	sources := fmt.Sprintf("deb [signed-by=%s] %s %s non-free\n", keyring, mirror, from.release)
	if err := errors.Join(
		os.WriteFile(filepath.Join(work, "sources.list"), []byte(sources), 0o644),
		os.WriteFile(filepath.Join(work, "status"), nil, 0o644),
	); err != nil {
		return "", err
	}
	apt := func(args ...string) error {
		options := []string{
			"-q", "-o", "Dir::Etc::sourcelist=" + work + "/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
			"-o", "Dir::State::lists=" + work + "/lists", "-o", "Dir::Cache=" + work + "/cache", "-o", "Dir::State::status=" + work + "/status",
			"-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20",
		}
		return command(ctx, work, "apt-get", append(options, args...)...)
	}
	if err := apt("update"); err != nil {
		return "", err
	}
	if err := apt(append([]string{"download"}, from.packages...)...); err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, archive := range archives {
		if err := command(ctx, work, "dpkg", "-x", archive, filepath.Join(work, "tree")); err != nil {
			return "", err
		}
	}
	// Whoever is first wins; all trees are the same.
	if err := os.Rename(filepath.Join(work, "tree"), dir); err != nil {
		if _, e := os.Stat(dir); e != nil {
			return "", err
		}
	}
	return dir, nil
}

// debianMirror returns the Debian mirror that this machine uses.
func debianMirror(ctx context.Context) (string, error) {
	if _, err := os.Stat(keyring); err != nil {
		return "", fmt.Errorf("no Debian: %w", err)
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		uri, codename, _ := strings.Cut(strings.TrimSpace(line), " ")
		if codename == compiler.release { // other releases are beside it

			return uri, nil
		}
	}
	return "", fmt.Errorf("apt of this machine does not list Debian %s, whose CUDA compiles the kernels", compiler.release)
}

// remove takes a directory away; what cannot be removed is left among temporary files.
func remove(dir string) { _ = os.RemoveAll(dir) }

// command runs a program and has what it said in the error.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		out = bytes.TrimSpace(out)
		if i := bytes.LastIndexByte(out, '\n'); i >= 0 {
			out = out[i+1:]
		}
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
