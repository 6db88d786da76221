package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/output"
)

// files are the files that a run writes. They are opened before it, so that no load is sent
// for a report that cannot be kept.
type files struct {
	open []*os.File
	rows []*bench.CSV
	end  []func(*bench.Report) error
}

// open creates the files of --save.
func (o *Options) open() (*files, error) {
	f := &files{}
	for _, name := range o.Save {
		kind := filepath.Ext(name)
		if kind != ".json" && kind != ".csv" && kind != ".svg" {
			f.close()
			return nil, usage("save", fmt.Errorf("%q does not end in .json, .csv or .svg", name))
		}
		file, err := os.Create(o.Session.Env.Path(name))
		if err != nil {
			f.close()
			return nil, &exit.Failure{Action: action, Err: fmt.Errorf("--save: %w", err)}
		}
		f.open = append(f.open, file)
		w := bufio.NewWriter(file)
		write := map[string]func(*bench.Report) error{
			".json": func(r *bench.Report) error { return output.WriteJSON(w, r, true) },
			".svg":  func(r *bench.Report) error { return r.SVG(w) },
		}[kind]
		if kind == ".csv" {
			rows := bench.NewCSV(w)
			f.rows = append(f.rows, rows)
			write = func(*bench.Report) error { return rows.Close() }
		}
		f.end = append(f.end, func(r *bench.Report) error {
			if err := errors.Join(write(r), w.Flush()); err != nil {
				return &exit.Failure{Action: "cannot write " + name, Err: err}
			}
			return nil
		})
	}
	return f, nil
}

// add writes the row of a request.
func (f *files) add(r bench.Record) {
	for _, rows := range f.rows {
		rows.Add(r)
	}
}

// finish writes what needs the report.
func (f *files) finish(r *bench.Report) error {
	var errs []error
	for _, end := range f.end {
		errs = append(errs, end(r))
	}
	for _, file := range f.open {
		errs = append(errs, file.Close())
	}
	f.open = nil
	return errors.Join(errs...)
}

// close closes the files of a run that did not happen.
func (f *files) close() {
	for _, file := range f.open {
		_ = file.Close() // the error that ended the run is told
	}
}

// compare prints two reports side by side.
func (o *Options) compare() error {
	var reports [2]*bench.Report
	for i, name := range o.Files {
		file, err := os.Open(o.Session.Env.Path(name))
		if err != nil {
			return &exit.Failure{Action: "cannot compare", Err: err}
		}
		reports[i], err = bench.Read(io.Reader(file))
		_ = file.Close() // it was only read
		if err != nil {
			return &exit.Failure{Action: "cannot compare", Err: fmt.Errorf("%s: %w", name, err)}
		}
	}
	return o.printComparison(bench.Compare(reports[0], reports[1]))
}
