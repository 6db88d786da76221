package kubetest

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) create(w http.ResponseWriter, list string, body object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _ := meta(body)["name"].(string)
	switch {
	case name == "":
		fail(w, http.StatusUnprocessableEntity, "Invalid", "no name")
	case s.objects[list+"/"+name] != nil:
		fail(w, http.StatusConflict, "AlreadyExists", name+" already exists")
	default:
		answer(w, s.change(list, name, body))
	}
}

func (s *Server) patch(w http.ResponseWriter, content, list, name string, body object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.objects[list+"/"+name]
	if content == "application/apply-patch+yaml" {
		next := clone(body)
		meta(next)["name"] = name
		if now != nil {
			meta(next)["uid"] = meta(now)["uid"]
		}
		answer(w, s.changeIfOther(list, name, now, next))
		return
	}
	if now == nil {
		fail(w, http.StatusNotFound, "NotFound", name+" not found")
		return
	}
	for _, pre := range []string{"uid", "resourceVersion"} {
		if want, ok := meta(body)[pre]; ok && want != meta(now)[pre] {
			fail(w, http.StatusConflict, "Conflict", "the object has been modified")
			return
		}
	}
	next, _ := merge(now, body).(object)
	answer(w, s.changeIfOther(list, name, now, next))
}

// changeIfOther makes no version of an object that stays as it is.
func (s *Server) changeIfOther(list, name string, now, next object) object {
	if now != nil {
		same := clone(next)
		for _, field := range []string{"resourceVersion", "uid"} {
			meta(same)[field] = meta(now)[field]
		}
		if reflect.DeepEqual(same, now) {
			return now
		}
	}
	return s.change(list, name, next)
}

// merge is a JSON merge patch.
func merge(now, patch any) any {
	p, ok := patch.(object)
	if !ok {
		return patch
	}
	n, _ := now.(object)
	next := maps.Clone(n)
	if next == nil {
		next = object{}
	}
	for key, value := range p {
		if value == nil {
			delete(next, key)
		} else {
			next[key] = merge(next[key], value)
		}
	}
	return next
}

func (s *Server) remove(w http.ResponseWriter, list, name string, body object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.objects[list+"/"+name]
	if now == nil {
		fail(w, http.StatusNotFound, "NotFound", name+" not found")
		return
	}
	pre, _ := body["preconditions"].(object)
	for field, want := range pre {
		if meta(now)[field] != want {
			fail(w, http.StatusConflict, "Conflict", "a precondition failed")
			return
		}
	}
	s.change(list, name, nil)
	answer(w, object{"kind": "Status", "details": object{"uid": meta(now)["uid"]}})
}

// selected reports whether selectors of labels (equality) and fields (the name) select an
// object.
func selected(o object, labels, fields string) bool {
	have, _ := meta(o)["labels"].(object)
	for term := range strings.SplitSeq(labels, ",") {
		key, want, valued := strings.Cut(term, "=")
		got, there := have[key]
		if term != "" && (!there || valued && got != want) {
			return false
		}
	}
	name, ok := strings.CutPrefix(fields, "metadata.name=")
	return !ok || meta(o)["name"] == name
}

// list answers in pages, as the limit says.
func (s *Server) list(w http.ResponseWriter, r *http.Request, list string) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []object{}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[path]; strings.HasPrefix(path, list+"/") && selected(o, q.Get("labelSelector"), q.Get("fieldSelector")) {
			items = append(items, o)
		}
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	about := object{"resourceVersion": strconv.FormatInt(s.version, 10)}
	items = items[min(from, len(items)):]
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		about["continue"] = strconv.Itoa(from + limit)
	}
	answer(w, object{"metadata": about, "items": items})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, list string) {
	labels := r.URL.Query().Get("labelSelector")
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		s.mu.Lock()
		moved, broken := s.moved, s.broken
		var news []event
		gone := from < s.cut || from > s.version // of a state that was lost
		for _, ev := range s.history {
			if ev.version > from && ev.list == list {
				news = append(news, ev)
			}
		}
		version := s.version
		if s.held {
			news, gone, version = nil, false, from
		}
		s.mu.Unlock()
		if gone {
			_ = out.Encode(object{"type": "ERROR", "object": object{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}})
			return
		}
		for _, ev := range news {
			if kind := kindFor(ev, labels); kind != "" && out.Encode(object{"type": kind, "object": ev.object}) != nil {
				return
			}
		}
		if len(news) == 0 && version > from {
			_ = out.Encode(object{"type": "BOOKMARK", "object": object{"metadata": object{"resourceVersion": strconv.FormatInt(version, 10)}}})
		}
		from = version
		_ = flush()
		select {
		case <-moved:
		case <-broken:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// kindFor returns the kind of an event as a watch with a selector sees it, "" if it does not.
func kindFor(ev event, labels string) string {
	now := selected(ev.object, labels, "")
	if ev.before == nil {
		if !now {
			return ""
		}
		return ev.kind
	}
	switch before := selected(ev.before, labels, ""); {
	case now && before:
		return "MODIFIED"
	case now:
		return "ADDED"
	case before:
		return "DELETED"
	}
	return ""
}
