package parse

// objects reads calls written as JSON objects: one or several of them, or a list.
type objects struct {
	c      *calls
	bare   bool   // nothing marks the beginning: only calls of declared tools count
	closer string // that may follow
	state  objectsState
	list   bool
	one    object
	close  expect
}

type objectsState uint8

const (
	objectsStart objectsState = iota
	objectsItem               // in a list, before an object
	objectsIn                 // in an object
	objectsNext               // after an object
	objectsTail               // before the closing mark
)

func (o *objects) put(b byte) verdict {
	switch o.state {
	case objectsIn:
		v := o.one.put(b)
		if v == done {
			o.c.structure()
			o.state = objectsNext
			return more
		}
		return v
	case objectsTail:
		_, v := o.close.put(b, o.closer)
		return ending(v)
	}
	switch {
	case space(b):
		return more
	case b == '{' && (o.state != objectsNext || !o.list):
		o.one.reset(o.c, o.bare)
		o.state = objectsIn
		return more
	}
	switch o.state {
	case objectsStart:
		if b == '[' && !o.bare {
			o.list, o.state = true, objectsItem
			return more
		}
	case objectsItem:
		if b == ']' && o.c.told {
			return o.listEnd()
		}
	case objectsNext:
		switch {
		case o.list && b == ',':
			o.state = objectsItem
			return more
		case o.list && b == ']':
			return o.listEnd()
		case o.list:
			return bad
		case b == ',' || b == ';':
			return more
		case o.closer != "":
			o.state = objectsTail
			return o.put(b)
		}
		return before
	}
	return bad
}

func (o *objects) listEnd() verdict {
	if o.closer == "" {
		return done
	}
	o.state = objectsTail
	return more
}

// ending is the verdict about a block whose closing mark may be missing.
func ending(v verdict) verdict {
	if v == bad {
		return before
	}
	return v
}

func (o *objects) end() {
	if one := &o.one; o.state == objectsIn && one.state == objectIn && one.as == asArguments {
		o.c.args(one.value.cut()...)
	}
}
