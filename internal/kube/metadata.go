package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// FieldManager is the name under which workers apply their objects.
	FieldManager = "dynamo-worker"
	// LabelRun is on objects whose entries end with leases of a run of a process: the
	// lease has the id of the instance, and the same run.
	LabelRun = "dynctl.dev/run"
	// cardPrefix covers model cards, as cluster.CardPrefix does for one namespace.
	cardPrefix = "v1/mdc/"
	modelType  = "Model"
)

// Worker is a DynamoWorkerMetadata object: what one pod, or container, serves.
type Worker struct {
	Object
	Spec struct {
		Data json.RawMessage `json:"data"`
	} `json:"spec"`
}

// Document is the data of a [Worker]: maps from namespace/component/endpoint/id, with ids
// in hexadecimal, to instances of endpoints and to model cards.
type Document struct {
	Endpoints     map[string]json.RawMessage `json:"endpoints"`
	ModelCards    map[string]json.RawMessage `json:"model_cards"`
	EventChannels map[string]json.RawMessage `json:"event_channels"`
	EventSources  map[string]json.RawMessage `json:"event_sources"`
}

// Apply returns what a process applies as its object.
func (p Pod) Apply(doc Document, run string) *Worker {
	w := &Worker{Object: Object{APIVersion: WorkerMetadata.APIVersion(), Kind: WorkerMetadata.Kind}}
	w.Metadata = Meta{
		Name: p.Object(), Namespace: p.Namespace, Labels: map[string]string{LabelRun: run},
		Owners: []OwnerReference{p.owner(p.Object() == p.Name)},
	}
	for _, m := range []*map[string]json.RawMessage{&doc.Endpoints, &doc.ModelCards, &doc.EventChannels, &doc.EventSources} {
		if *m == nil {
			*m = map[string]json.RawMessage{}
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		panic(fmt.Sprintf("a document does not encode: %v", err)) // its values were decoded before
	}
	w.Spec.Data = data
	return w
}

// Entry is one key of the store in a document.
type Entry struct {
	Key   string
	Value []byte
	ID    cluster.InstanceID
}

// Entries returns what the object holds in terms of the store. An error means that the
// object is not valid as a whole; a missing map is an empty one.
func (w *Worker) Entries() ([]Entry, error) {
	if len(w.Spec.Data) == 0 || string(w.Spec.Data) == "null" {
		return nil, errors.New("spec.data is missing")
	}
	var doc Document
	if err := json.Unmarshal(w.Spec.Data, &doc); err != nil {
		return nil, fmt.Errorf("spec.data: %w", err)
	}
	var found []Entry
	for path, raw := range doc.Endpoints {
		id, err := idOf(path, raw)
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", path, err)
		}
		found = append(found, Entry{cluster.InstancePrefix("", "", "") + path, raw, id})
	}
	for path, raw := range doc.ModelCards {
		id, err := idOf(path, raw)
		if err != nil {
			return nil, fmt.Errorf("model card %s: %w", path, err)
		}
		var card struct {
			Card json.RawMessage `json:"card_json"`
		}
		if err := json.Unmarshal(raw, &card); err != nil || len(card.Card) == 0 {
			return nil, fmt.Errorf("model card %s: card_json is missing", path)
		}
		found = append(found, Entry{cardPrefix + path, card.Card, id})
	}
	return found, nil
}

// idOf returns the id in the path of an entry, which is an object.
func idOf(path string, raw json.RawMessage) (cluster.InstanceID, error) {
	if trimmed := strings.TrimSpace(string(raw)); !strings.HasPrefix(trimmed, "{") {
		return 0, errors.New("it is not an object")
	}
	parts := strings.Split(path, "/")
	if len(parts) < 4 {
		return 0, errors.New("expected namespace/component/endpoint/id")
	}
	return cluster.ParseInstanceID(parts[3])
}

// Place says where a document holds a key of the store, if it can.
type Place struct {
	card bool
	path string
	ID   cluster.InstanceID
}

// PlaceOf returns the place of a key; ok is false for keys that documents do not hold.
func PlaceOf(key string) (p Place, ok bool) {
	path, ok := strings.CutPrefix(key, cluster.InstancePrefix("", "", ""))
	if !ok {
		if path, ok = strings.CutPrefix(key, cardPrefix); !ok {
			return p, false
		}
		p.card = true
	}
	parts := strings.Split(path, "/")
	if len(parts) < 4 || len(parts) > 5 || len(parts) == 5 && !p.card {
		return p, false
	}
	id, err := cluster.ParseInstanceID(parts[3])
	p.path, p.ID = path, id
	return p, err == nil
}

// Held reports whether documents may hold keys that begin so.
func Held(prefix string) bool {
	for _, p := range []string{cluster.InstancePrefix("", "", ""), cardPrefix} {
		if strings.HasPrefix(prefix, p) || strings.HasPrefix(p, prefix) {
			return true
		}
	}
	return false
}

// Has reports whether the document has a value at a place.
func (d Document) Has(p Place) bool {
	if p.card {
		return d.ModelCards[p.path] != nil
	}
	return d.Endpoints[p.path] != nil
}

// Put returns the document with a value, which must be a JSON object, or without it if
// value is nil. The document itself stays as it is.
func (d Document) Put(p Place, value []byte) (Document, error) {
	target := &d.Endpoints
	if p.card {
		target = &d.ModelCards
	}
	next := make(map[string]json.RawMessage, len(*target)+1)
	for path, raw := range *target {
		next[path] = raw
	}
	*target = next
	if value == nil {
		delete(next, p.path)
		return d, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil || object == nil {
		return d, fmt.Errorf("%s: the value is not a JSON object", p.path)
	}
	next[p.path] = append(json.RawMessage(nil), value...)
	if !p.card {
		return d, nil
	}
	parts := strings.Split(p.path, "/")
	card := struct {
		Type      string             `json:"type"`
		Namespace string             `json:"namespace"`
		Component string             `json:"component"`
		Endpoint  string             `json:"endpoint"`
		ID        cluster.InstanceID `json:"instance_id"`
		Card      json.RawMessage    `json:"card_json"`
		Suffix    string             `json:"model_suffix,omitempty"`
	}{modelType, parts[0], parts[1], parts[2], p.ID, value, strings.Join(parts[4:], "/")}
	raw, err := json.Marshal(card)
	next[p.path] = raw
	return d, err
}
