package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Roots of the keys of instances that Dynamo writes, its newest releases at first. They are
// read, and never written.
var foreignRoots = []string{"v1/instances/", "instances/"}

// Prefixes returns prefixes of all keys under which instances that e names may be
// registered: that of [Endpoint.Prefix], and those of older layouts, below which there may
// be others, too. [ReadInstance] tells which instance a key stands for.
func (e Endpoint) Prefixes() []string {
	own := e.Prefix()
	all := []string{own}
	path := strings.TrimPrefix(own, InstancePrefix("", "", ""))
	if e.Name != "" {
		path = strings.TrimSuffix(path, "/") // the id follows a slash, a colon or a dash
		all = append(all, strings.TrimSuffix(own, "/")+"-")
	}
	for _, root := range foreignRoots {
		all = append(all, root+path)
	}
	return all
}

// ParseInstanceKey returns the endpoint and the id in the key of an instance. Beside those of
// [InstanceKey], it reads /services/N/C/E-ID, v1/instances/N/C/E/ID, instances/N/C/E/ID
// and instances/N/C/E:ID.
func ParseInstanceKey(key string) (e Endpoint, id InstanceID, ok bool) {
	services := InstancePrefix("", "", "")
	path, own := strings.CutPrefix(key, services)
	for _, root := range foreignRoots {
		if !own && !ok {
			path, ok = strings.CutPrefix(key, root)
		}
	}
	if !own && !ok {
		return Endpoint{}, 0, false
	}
	parts := strings.Split(path, "/")
	if len(parts) == 3 {
		sign := ":"
		if own {
			sign = "-"
		}
		at := strings.LastIndex(parts[2], sign)
		if at < 0 {
			return Endpoint{}, 0, false
		}
		parts = append(parts[:2], parts[2][:at], parts[2][at+1:])
	}
	if len(parts) != 4 {
		return Endpoint{}, 0, false
	}
	e = Endpoint{Namespace: parts[0], Component: parts[1], Name: parts[2]}
	id, err := ParseInstanceID(parts[3])
	return e, id, err == nil && e.Check() == nil
}

// ReadInstance reads the registration under a key. The id is that of the key: programs that
// compute with float64 round the one in the value. A TCP address without a path gets that of
// the endpoint.
func ReadInstance(key string, value []byte) (Instance, error) {
	var i Instance
	if err := json.Unmarshal(value, &i); err != nil {
		return i, err
	}
	e, id, ok := ParseInstanceKey(key)
	switch {
	case !ok:
		return i, fmt.Errorf("%s is not the key of an instance", key)
	case i.Type != "" && i.Type != InstanceType:
		return i, fmt.Errorf("it is of type %q", i.Type)
	case i.Of() != e, i.InstanceID != id && float64(i.InstanceID) != float64(id):
		return i, fmt.Errorf("registration of %s", i.Key())
	}
	i.InstanceID = id
	if t := &i.Transport; t.TCP != "" && !strings.Contains(t.TCP, "/") {
		t.TCP += "/" + id.String() + "/" + e.Name
	}
	return i, nil
}
