package cluster

import (
	"errors"
	"fmt"
	"strings"
)

// ErrName is returned for a namespace, component or endpoint whose name cannot be part of
// a key.
var ErrName = errors.New("bad name")

// Endpoint names an endpoint, or as a query all endpoints of a component, of a namespace
// or of a store: those whose fields are empty match any. Levels of nested namespaces are
// separated by dots.
type Endpoint struct {
	Namespace string
	Component string // empty in a query for a namespace
	Name      string // empty in a query for a component
}

// EndpointScheme begins the full form of an endpoint's name.
const EndpointScheme = "dyn://"

// String returns the full form: dyn://namespace.component.endpoint. A query ends with a
// slash, so that it reads back as the same query; the query for everything is empty.
func (e Endpoint) String() string {
	switch {
	case e.Namespace == "":
		return ""
	case e.Component == "":
		return EndpointScheme + e.Namespace + "/"
	case e.Name == "":
		return EndpointScheme + e.Namespace + "/" + e.Component + "/"
	}
	return EndpointScheme + e.Namespace + "." + e.Component + "." + e.Name
}

// Prefix returns the prefix of the keys of all instances that e names.
func (e Endpoint) Prefix() string { return InstancePrefix(e.Namespace, e.Component, e.Name) }

// Matches reports whether an instance is one of those that e names.
func (e Endpoint) Matches(i Instance) bool {
	return (e.Namespace == "" || e.Namespace == i.Namespace) &&
		(e.Component == "" || e.Component == i.Component) &&
		(e.Name == "" || e.Name == i.Endpoint)
}

// Check returns an ErrName that says which part is no name, or nil. Every part must be
// there.
func (e Endpoint) Check() error {
	switch {
	case !validNamespace(e.Namespace):
		return fmt.Errorf("%w: namespace %q (want lower-case letters, digits, - and _, and dots between levels)", ErrName, e.Namespace)
	case !validWord(e.Component, false):
		return fmt.Errorf("%w: component %q (want lower-case letters, digits, - and _)", ErrName, e.Component)
	case !validWord(e.Name, true):
		return fmt.Errorf("%w: endpoint %q (want letters, digits, - and _)", ErrName, e.Name)
	}
	return nil
}

// CheckNamespace returns an ErrName if a namespace cannot be part of a key.
func CheckNamespace(name string) error {
	return Endpoint{Namespace: name, Component: "c", Name: "e"}.Check()
}

// ParseEndpoint reads the name of an endpoint: dyn://namespace.component.endpoint. The
// scheme is optional, and slashes separate as dots do. The last part is the endpoint, the
// one before it the component, all others are the namespace. No part is guessed: with
// fewer than three, the error is an ErrName.
func ParseEndpoint(text string) (Endpoint, error) {
	parts := splitEndpoint(text)
	if len(parts) < 3 {
		return Endpoint{}, fmt.Errorf("%w: endpoint %q (want dyn://namespace.component.endpoint)", ErrName, text)
	}
	e := fromParts(parts)
	if err := e.Check(); err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %q: %w", text, err)
	}
	return e, nil
}

// ParseEndpointQuery reads a query: nothing is every endpoint, one part a namespace, two a
// namespace and a component, three or more an endpoint as [ParseEndpoint] reads it. A
// slash at the end asks for all below: "a.b/" is the nested namespace a.b, and
// "a.b/worker/" its component worker.
func ParseEndpointQuery(text string) (Endpoint, error) {
	path, below := strings.CutSuffix(strings.TrimPrefix(text, EndpointScheme), "/")
	parts := splitEndpoint(path)
	var e Endpoint
	switch {
	case text == "":
		return e, nil
	case below:
		e.Namespace, e.Component, _ = strings.Cut(path, "/")
		if e.Component == "" && strings.HasSuffix(path, "/") {
			return Endpoint{}, fmt.Errorf("%w: %q has an empty part", ErrName, text)
		}
	case len(parts) < 3:
		e.Namespace = parts[0]
		e.Component = strings.Join(parts[1:], "")
		if len(parts) == 2 && e.Component == "" {
			return Endpoint{}, fmt.Errorf("%w: %q has an empty part", ErrName, text)
		}
	default:
		return ParseEndpoint(text)
	}
	whole := e
	whole.Name = "e"
	if e.Component == "" {
		whole.Component = "c"
	}
	if err := whole.Check(); err != nil {
		return Endpoint{}, fmt.Errorf("query %q: %w", text, err)
	}
	return e, nil
}

func splitEndpoint(text string) []string {
	return strings.Split(strings.ReplaceAll(strings.TrimPrefix(text, EndpointScheme), "/", "."), ".")
}

func fromParts(parts []string) Endpoint {
	n := len(parts)
	return Endpoint{Namespace: strings.Join(parts[:n-2], "."), Component: parts[n-2], Name: parts[n-1]}
}

func validNamespace(name string) bool {
	for level := range strings.SplitSeq(name, ".") {
		if !validWord(level, false) {
			return false
		}
	}
	return true
}

func validWord(s string, upper bool) bool {
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || upper && c >= 'A' && c <= 'Z'
		if !ok {
			return false
		}
	}
	return s != ""
}
