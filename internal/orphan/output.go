package orphan

import (
	"bytes"
	"os/exec"
)

// CombinedOutput is that of exec.Cmd, for a process that is started by [Start].
func CombinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := Start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return out.Bytes(), err
}
