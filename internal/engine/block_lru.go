package engine

// lruList is a doubly linked list of cached blocks, threaded through the blocks
// themselves; head is the least recently used.
type lruList struct {
	head, tail int32
	n          int
}

func (l *lruList) push(blocks []block, id int32) {
	b := &blocks[id]
	b.prev, b.nx = l.tail, -1
	if l.tail >= 0 {
		blocks[l.tail].nx = id
	} else {
		l.head = id
	}
	l.tail = id
	l.n++
}

func (l *lruList) remove(blocks []block, id int32) {
	b := &blocks[id]
	if b.prev >= 0 {
		blocks[b.prev].nx = b.nx
	} else {
		l.head = b.nx
	}
	if b.nx >= 0 {
		blocks[b.nx].prev = b.prev
	} else {
		l.tail = b.prev
	}
	l.n--
}
