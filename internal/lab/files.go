package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/lab/bench"
)

// writePlots writes the plots into their folder beside the document.
func writePlots(r *bench.Report, dir string) error {
	if r.Run.Plots == "" {
		return nil
	}
	for _, s := range r.Sections {
		for _, p := range s.Plots {
			if err := replaceFile(filepath.Join(dir, r.Run.Plots, p.Name+".svg"), p.SVG()); err != nil {
				return err
			}
		}
	}
	return nil
}

// plotsOf is the folder of plots beside a document, named after it.
func plotsOf(document string) string {
	base := filepath.Base(document)
	if name := strings.TrimSuffix(base, filepath.Ext(base)); document != "" && name != base {
		return name
	}
	return "" // no document, or a folder would take its name
}

// replaceFile writes a file in one step, so that an old report is never half gone.
func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".report-")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // the error above is what counts
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
