package listing

import (
	"context"
	"slices"

	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
)

// Scene is the source of a listing: one view of a cluster, and the connections to ask for more.
type Scene struct {
	Session *session.Session
	Cluster *client.Cluster
	View    client.View
}

// Kind is one kind of things that ps and get list. T is one of them as -o json prints it.
type Kind[T any] struct {
	What  string // in the plural: workers
	Items func(ctx context.Context, s Scene) ([]T, error)
	Name  func(T) string
	Table func(s Scene, items []T, wide bool) *output.Table
	// Single kinds have one item at most: JSON holds that, or null, and no list.
	Single bool
	// File, if set, makes the YAML of a single item.
	File func(T) ([]byte, error)
	// Empty says what to do when there is nothing to list; below adds lines to a table.
	Empty func(s Scene) string
	Below func(s Scene, items []T)
	// Gap says what is missing from the last listing, and why; empty if nothing is.
	Gap func() string
}

// Lister is a kind of whatever type.
type Lister interface {
	plural() string
	list(ctx context.Context, s Scene, names []string) (listed, error)
}

// listed is the list as an answer.
type listed struct {
	output.Answer
	known   []string // the names of all there are
	missing []string // those of the asked names that are not there
	none    string   // what to do about an empty list
	gap     string   // what is missing, though nobody asked for it by name
	below   func()
}

func (k Kind[T]) plural() string { return k.What }

// list finds the things with the given names, or all. They keep the order of the listing.
func (k Kind[T]) list(ctx context.Context, s Scene, names []string) (listed, error) {
	all, err := k.Items(ctx, s)
	if err != nil {
		return listed{}, err
	}
	names = slices.Clone(names)
	for i := range names {
		names[i] = s.View.NameOf(names[i])
	}
	var out listed
	items := []T{} // never nil: JSON has an empty list
	for _, item := range all {
		name := k.Name(item)
		out.known = append(out.known, name)
		if len(names) == 0 || slices.Contains(names, name) {
			items = append(items, item)
			out.Names = append(out.Names, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(out.known, name) {
			out.missing = append(out.missing, name)
		}
	}
	out.Data = items
	if k.Single {
		out.Data = nil
		if len(items) > 0 {
			out.Data = items[0]
			if k.File != nil {
				out.File = func() ([]byte, error) { return k.File(items[0]) }
			}
		}
	}
	out.Table = func(wide bool) *output.Table { return k.Table(s, items, wide) }
	if len(all) == 0 && k.Empty != nil {
		out.none = k.Empty(s)
	}
	if k.Gap != nil {
		out.gap = k.Gap()
	}
	if k.Below != nil {
		out.below = func() { k.Below(s, items) }
	}
	return out, nil
}
