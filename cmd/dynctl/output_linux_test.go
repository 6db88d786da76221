package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// An answer that cannot be written is a failure, whichever command gives it.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, line := range []string{
		"--help", "help", "up --help", "help keys", "--version", "version", "version -o json", "version -o name", "completion bash", "help exit-codes",
	} {
		code, stderr := writing(t, full, line)
		if code != 1 || !strings.HasPrefix(stderr, "dynctl: ") || !strings.HasSuffix(stderr, "cannot write the output: no space left on device\n") {
			t.Errorf("dynctl %s: exit %d: %s", line, code, stderr)
		}
	}
}

// A reader that has seen enough, as head, is no failure to talk about.
func TestNobodyReadsTheAnswer(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	for _, line := range []string{"--help", "version -o json"} {
		if _, stderr := writing(t, w, line); stderr != "" {
			t.Errorf("dynctl %s: %s", line, stderr)
		}
	}
}

// writing runs dynctl with its answer going to out, and returns its exit code and what it
// said otherwise.
func writing(t *testing.T, out *os.File, line string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(line)...)
	var stderr bytes.Buffer
	cmd.Env = []string{"RUN_DYNCTL_MAIN=1", "HOME=" + t.TempDir()}
	cmd.Stdout, cmd.Stderr = out, &stderr
	_ = cmd.Run() // its exit code tells more
	return cmd.ProcessState.ExitCode(), stderr.String()
}
