package profile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/profiler"
)

// journal is the file of the points beside the profile.
func (o *Options) journal() string { return o.Save + ".points" }

// write writes the files that flags name. Each is whole or as it was before.
func (o *Options) write(t *target, p *profile.Profile, all []profiler.Measurement) error {
	write := func(name string, content func(io.Writer) error) error {
		var b bytes.Buffer
		err := content(&b)
		if err == nil {
			err = replace(o.Session.Env.Path(name), b.Bytes())
		}
		if err != nil {
			return &exit.Failure{Action: "cannot write " + name, Err: err}
		}
		return nil
	}
	var errs []error
	if o.Save != "" {
		errs = append(errs, write(o.Save, p.Write))
	}
	if o.SVG != "" {
		errs = append(errs, write(o.SVG, func(w io.Writer) error { return profiler.SVG(w, t.subject, all) }))
	}
	if o.Table != "" {
		errs = append(errs,
			write(filepath.Join(o.Table, "selected_prefill_interpolation", "raw_data.npz"), p.Measured.Prefill.Write),
			write(filepath.Join(o.Table, "selected_decode_interpolation", "raw_data.npz"), p.Measured.Decode.Write))
	}
	return errors.Join(errs...)
}

// replace puts a file in the place of the one at the path, if there is one.
func replace(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // the error is told
	}
	return err
}
