package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// diskAttacks have a cluster of their own, with embedded servers.
func diskAttacks() []attack {
	return []attack{{
		name: "full disk", what: "the disk of a node with embedded etcd and NATS is full for ten seconds, then has room again",
		skip: func() string {
			if os.Getuid() != 0 {
				return "mounting a small disk needs root"
			}
			return ""
		},
		run: fullDisk, alone: true,
	}}
}

// fullDisk serves from a disk of 256 MiB that gets full, and asks meanwhile.
func fullDisk(ctx context.Context, c *target, seen *tally) (err error) {
	ctx = context.WithoutCancel(ctx)
	dir := filepath.Join(c.dir, "disk")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	defer func() { err = errors.Join(err, exec.Command("umount", "-l", dir).Run()) }()
	port, err := freePort()
	if err != nil {
		return err
	}
	dynctl := func(args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "dynctl"), append(args, "--cluster", "disk", "--state-dir", dir)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("dynctl %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := dynctl("up", "--prefill", "1", "--decode", "1", "--port", port); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dynctl("down", "--yes")) }()
	url := "http://127.0.0.1:" + port + "/v1/completions"
	body := []byte(`{"model":"` + model + `","prompt":"Hello","max_tokens":1,"temperature":0}`)
	ask := func(when string, long time.Duration) error {
		for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(probeEvery) {
			one, cancel := context.WithTimeout(ctx, probeTimeout)
			status, answer, err := post(one, probeClient, url, body)
			cancel()
			if err != nil || status != 200 {
				return fmt.Errorf("%s: %d %s: %w", when, status, answer, err)
			}
			seen.add("answered " + when)
		}
		return nil
	}
	if err := ask("before", time.Second); err != nil {
		return err
	}
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = ballast.Write(block)
	}
	// Something must be written while there is no room: orders are.
	for i := range 6 {
		_ = dynctl("scale", "--decode", strconv.Itoa(1+i%2), "--timeout", "1s")
		if _, err := ballast.Write(block[:4096]); err == nil {
			seen.add("there was room")
		}
	}
	if err := ask("while it is full", 10*time.Second); err != nil {
		return err
	}
	if err := errors.Join(ballast.Close(), os.Remove(ballast.Name())); err != nil {
		return err
	}
	if err := ask("when there is room", 10*time.Second); err != nil {
		return err
	}
	if err := dynctl("scale", "--decode", "2", "--timeout", "60s"); err != nil {
		return fmt.Errorf("an order when there is room: %w", err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "disk", "node-1", "logs", "dynamod.log"))
	if err != nil {
		return err
	}
	for range strings.Count(string(log), "the embedded server runs again") {
		seen.add("server started again")
	}
	return ask("afterwards", time.Second)
}
