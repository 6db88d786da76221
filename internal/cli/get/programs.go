package get

import (
	"context"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cluster"
)

// psRow is a worker, or a program that serves something beside the workers.
type psRow struct {
	cluster.Worker
	Program *cluster.Program `json:"program,omitempty"`
	Serves  []string         `json:"serves,omitempty"` // endpoints of a program
}

// psKind lists workers, and below them services and programs.
func psKind() listing.Kind[psRow] {
	of := workerKind()
	workers := func(rows []psRow) []cluster.Worker {
		out := make([]cluster.Worker, len(rows))
		for i := range rows {
			out[i] = rows[i].Worker
		}
		return out
	}
	return listing.Kind[psRow]{
		What: of.What,
		Items: func(ctx context.Context, s listing.Scene) ([]psRow, error) {
			found, err := of.Items(ctx, s)
			rows := make([]psRow, 0, len(found)+len(s.View.Programs))
			for _, w := range found {
				rows = append(rows, psRow{Worker: w})
			}
			return append(rows, programRows(s)...), err
		},
		Name: func(r psRow) string { return r.Name },
		Table: func(s listing.Scene, rows []psRow, wide bool) *output.Table {
			serves := make([]string, len(rows))
			for i := range rows {
				serves[i] = strings.Join(rows[i].Serves, ",")
			}
			return workersTable(s.Session, s.View, workers(rows), wide, serves)
		},
		Empty: of.Empty,
		Below: func(s listing.Scene, rows []psRow) { reasons(s.Session, workers(rows)) },
	}
}

// programRows describes services and programs in the words of workers.
func programRows(s listing.Scene) []psRow {
	var rows []psRow
	for i := range s.View.Programs {
		p := &s.View.Programs[i]
		up := s.Session.Out.Now().Sub(p.StartedAt)
		node := p.Host
		if p.Node != "" {
			node = s.View.NodeName(p.Node)
		}
		rows = append(rows, psRow{
			Worker: cluster.Worker{
				WorkerStatus: cluster.WorkerStatus{
					Name: p.Name, Role: cluster.Role(p.Kind), Model: p.Model, Node: node, State: p.State(), Reason: p.Reason,
					InstanceID: p.InstanceID, StartedAt: p.StartedAt, UpdatedAt: p.Since,
				},
				Uptime: &up,
			},
			Program: p, Serves: s.View.Serves(p.InstanceID),
		})
	}
	return rows
}
