package tensorfile

import (
	"encoding/binary"
	"maps"
	"slices"
)

// readTorch reads what torch.save writes since version 1.6: a zip file with a pickle and
// the storages that it refers to.
func readTorch(data []byte, l Limits) ([]Tensor, error) {
	a, err := openArchive(data)
	if err != nil {
		return nil, err
	}
	program, ok := a["data.pkl"]
	if !ok {
		return nil, formatf("no data.pkl in the archive: not of torch.save")
	}
	if order, ok := a["byteorder"]; ok && string(order) != "little" {
		return nil, unsupportedf("byte order %.20q", order)
	}
	p := &pickle{program: program, storages: a}
	root, err := p.run()
	if err != nil {
		return nil, err
	}
	left := l.bytes()
	switch root := root.(type) {
	case view:
		t, err := root.contiguous(&left)
		return []Tensor{t}, err
	case *dict:
		return tensorsOf(root, &left)
	}
	return nil, unsupportedf("%s where a tensor or a dictionary of tensors is expected", nameOf(root))
}

// tensorsOf takes the values of a dictionary. Those that are None are left out.
func tensorsOf(d *dict, left *int) ([]Tensor, error) {
	if main, ok := d.values[MainName]; !ok {
		return nil, formatf("a dictionary without %s", MainName)
	} else if _, ok := main.(view); !ok {
		return nil, errorOf(MainName, unsupportedf("%s where a tensor is expected", nameOf(main)))
	}
	var tensors []Tensor
	for _, name := range slices.Sorted(maps.Keys(d.values)) {
		var t Tensor
		var err error
		switch v := d.values[name].(type) {
		case nil:
			continue
		case view:
			t, err = v.contiguous(left)
		case *list:
			t, err = numbers(v.items, left)
		case tuple:
			t, err = numbers(v, left)
		default:
			err = unsupportedf("%s", nameOf(v))
		}
		if err != nil {
			return nil, errorOf(name, err)
		}
		t.Name = name
		tensors = append(tensors, t)
	}
	return tensors, nil
}

// numbers makes a tensor of a list of whole numbers.
func numbers(items []any, left *int) (Tensor, error) {
	if len(items) > *left/8 {
		return Tensor{}, limitf("a list of %d numbers, where %d bytes are left", len(items), *left)
	}
	*left -= 8 * len(items)
	t := Tensor{DType: "I64", Shape: []int{len(items)}, Data: []byte{}}
	for _, v := range items {
		n, ok := v.(int64)
		if !ok {
			return Tensor{}, unsupportedf("a list with %s", nameOf(v))
		}
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(n))
	}
	return t, nil
}
