package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/client"
)

// scene is where a listing looks: one view of a cluster, and how to ask for more.
type scene struct {
	inv *invocation
	c   *client.Cluster
	v   client.View
}

// kind is one kind of things that ps and get list. T is one of them as -o json prints it.
type kind[T any] struct {
	what  string // in the plural: workers
	items func(ctx context.Context, s scene) ([]T, error)
	name  func(T) string
	table func(s scene, items []T, wide bool) *table
	// single kinds have one item at most: JSON holds that, or null, and no list.
	single bool
	// file, if set, makes the YAML of a single item.
	file func(T) ([]byte, error)
	// empty says what to do when there is nothing to list; below adds lines to a table.
	empty func(s scene) string
	below func(s scene, items []T)
	// gap says what is missing from the last listing, and why; empty if nothing is.
	gap func() string
}

// lister is a kind of whatever type.
type lister interface {
	plural() string
	list(ctx context.Context, s scene, names []string) (listed, error)
}

// listed is what was found, as an answer.
type listed struct {
	answer
	known   []string // the names of all there are
	missing []string // those of the asked names that are not there
	none    string   // what to do about an empty list
	gap     string   // what is missing, though nobody asked for it by name
	below   func()
}

func (k kind[T]) plural() string { return k.what }

// list finds the things with the given names, or all. They keep the order of the listing.
func (k kind[T]) list(ctx context.Context, s scene, names []string) (listed, error) {
	all, err := k.items(ctx, s)
	if err != nil {
		return listed{}, err
	}
	var out listed
	items := []T{} // never nil: JSON has an empty list
	for _, item := range all {
		name := k.name(item)
		out.known = append(out.known, name)
		if len(names) == 0 || slices.Contains(names, name) {
			items = append(items, item)
			out.names = append(out.names, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(out.known, name) {
			out.missing = append(out.missing, name)
		}
	}
	out.data = items
	if k.single {
		out.data = nil
		if len(items) > 0 {
			out.data = items[0]
			if k.file != nil {
				out.file = func() ([]byte, error) { return k.file(items[0]) }
			}
		}
	}
	out.table = func(wide bool) *table { return k.table(s, items, wide) }
	if len(all) == 0 && k.empty != nil {
		out.none = k.empty(s)
	}
	if k.gap != nil {
		out.gap = k.gap()
	}
	if k.below != nil {
		out.below = func() { k.below(s, items) }
	}
	return out, nil
}

// listTimeout bounds what one listing may ask of the stores.
const listTimeout = 10 * time.Second

// show prints a listing once, or again and again.
func (inv *invocation) show(ctx context.Context, l lister, names []string, watch bool) error {
	action := "cannot list " + l.plural()
	c, err := inv.connect(ctx, action)
	if err != nil {
		return err
	}
	if watch {
		return inv.follow(ctx, c, l, names)
	}
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	v, err := c.View(limited)
	if err != nil {
		return &failure{action: action, err: err}
	}
	found, err := l.list(limited, scene{inv, c, v}, names)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &failure{action: action, err: err}
	}
	absent := inv.absent(l, found)
	if absent != nil && len(found.missing) == len(names) {
		return absent
	}
	if found.none != "" && inv.prose() {
		inv.note("%s", found.none)
	}
	if err := inv.answer(found.answer); err != nil {
		return err
	}
	if found.gap != "" {
		inv.warn("%s", found.gap)
	}
	if found.below != nil && inv.format == "table" && !inv.quiet {
		found.below()
	}
	if absent != nil {
		inv.report(inv.cmd, absent)
		return silent{exitPartly}
	}
	return nil
}

// absent is the error about names that nothing has; nil if all are there.
func (inv *invocation) absent(l lister, found listed) error {
	if len(found.missing) == 0 {
		return nil
	}
	return &failure{
		action: "cannot list " + nameList(found.missing),
		err:    fmt.Errorf("not among the %s of cluster %s", l.plural(), inv.cfg.Cluster),
		facts:  []string{l.plural() + ": " + nameList(found.known)},
		tries:  []string{"dynctl get " + l.plural()},
	}
}
