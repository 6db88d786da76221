package tensorfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// entry is one of an archive.
type entry struct {
	name, content string
	method        uint16
}

func archiveOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		f, err := w.CreateHeader(&zip.FileHeader{Name: e.name, Method: e.method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// torchFile is an archive with a program and one storage.
func torchFile(t testing.TB, program, storage []byte) []byte {
	return archiveOf(t, entry{name: "a/data.pkl", content: string(program)}, entry{name: "a/data/0", content: string(storage)})
}

// Parts of programs.

func number(n int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func text(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func numbersOf(list ...int64) string {
	s := "("
	for _, n := range list {
		s += number(n)
	}
	return s + "t"
}

func storageOf(class, key string, count int64) string {
	return "(" + text("storage") + "ctorch\n" + class + "\n" + text(key) + text("cpu") + number(count) + "tQ"
}

func tensorOf(storage string, offset int64, shape, strides string) string {
	return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + shape + strides + "\x89ccollections\nOrderedDict\n)RtR"
}

func program(body string) []byte { return []byte("\x80\x02" + body + ".") }

var (
	eight = storageOf("FloatStorage", "0", 8)
	plain = tensorOf(eight, 0, numbersOf(8), numbersOf(1))
)

func TestReadRefusesHostilePrograms(t *testing.T) {
	deep := strings.Repeat("(", 65)
	for name, c := range map[string]struct {
		program []byte
		kind    error
		text    string
	}{
		"nothing":                 {nil, ErrFormat, "ends early"},
		"no end":                  {program("N")[:3], ErrFormat, "ends early"},
		"more after the end":      {append(program(plain), '.'), ErrFormat, "bytes to come"},
		"two results":             {program(plain + plain), ErrFormat, "ends with 2 values"},
		"a mark that stays":       {program("(" + plain), ErrFormat, "1 marks"},
		"a number":                {program(number(1)), ErrUnsupported, "a number where"},
		"a text":                  {program(text("x")), ErrUnsupported, "a text where"},
		"protocol 1":              {[]byte("\x80\x01N."), ErrUnsupported, "protocol 1"},
		"protocol 6":              {[]byte("\x80\x06N."), ErrUnsupported, "protocol 6"},
		"a system call":           {program("cos\nsystem\n(" + text("true") + "tR"), ErrUnsupported, `"os.system"`},
		"a call on the stack":     {program(text("builtins") + text("eval") + "\x93"), ErrUnsupported, `"builtins.eval"`},
		"a name that is none":     {program(number(1) + text("x") + "\x93"), ErrFormat, "no name"},
		"a name without an end":   {program("ctorch"), ErrFormat, "without an end"},
		"a class of torch":        {program("ctorch\nTensor\n"), ErrUnsupported, `"torch.Tensor"`},
		"INST":                    {program("(ios\nsystem\n"), ErrUnsupported, "instruction 0x69"},
		"OBJ":                     {program("(o"), ErrUnsupported, "instruction 0x6f"},
		"NEWOBJ":                  {program("ctorch\nSize\n)\x81"), ErrUnsupported, "instruction 0x81"},
		"EXT1":                    {program("\x82\x01"), ErrUnsupported, "instruction 0x82"},
		"PERSID":                  {program("P0\n"), ErrUnsupported, "instruction 0x50"},
		"BINBYTES8 of 2 GB":       {program("\x8e\x00\x00\x00\x80\x00\x00\x00\x00"), ErrUnsupported, "instruction 0x8e"},
		"a text of 4 GB":          {program("X\xff\xff\xff\xff"), ErrFormat, "ends early"},
		"a text of other bytes":   {program(text("\xff")), ErrFormat, "UTF-8"},
		"a number of 255 bytes":   {program("\x8a\xff"), ErrUnsupported, "255 bytes"},
		"an empty stack":          {program("R"), ErrFormat, "0 values where 2"},
		"values below a mark":     {program("NN(R"), ErrFormat, "0 values where 2"},
		"no mark":                 {program("Nt"), ErrFormat, "no mark"},
		"nothing remembered":      {program("h\x07"), ErrFormat, "as 7"},
		"append to a number":      {program("K\x01Na"), ErrFormat, "appended to a number"},
		"a key of a list":         {program("]" + text("k") + "Ns"), ErrFormat, "for a list"},
		"half a pair":             {program("}(" + text("k") + "u"), ErrFormat, "1 keys and values"},
		"a key twice":             {program("}" + text("k") + "Ns" + text("k") + "Ns"), ErrFormat, "twice"},
		"a key of a number":       {program("}K\x01Ns"), ErrUnsupported, "a number as a key"},
		"a call of a text":        {program(text("x") + ")R"), ErrUnsupported, "a call of a text"},
		"a call with a list":      {program("ctorch\nSize\n]R"), ErrUnsupported, "with a list"},
		"a call of a storage":     {program("ctorch\nFloatStorage\n)R"), ErrUnsupported, "torch.FloatStorage"},
		"a size of a size":        {program("ctorch\nSize\n)R"), ErrUnsupported, "torch.Size"},
		"OrderedDict of a list":   {program("ccollections\nOrderedDict\n]\x85R"), ErrUnsupported, "OrderedDict"},
		"a state of a dictionary": {program("}}b"), ErrUnsupported, "a state for a dictionary"},
		"a state of a text":       {program("ccollections\nOrderedDict\n)R" + text("x") + "b"), ErrUnsupported, "a text as the state"},
		"a parameter of a number": {program("ctorch._utils\n_rebuild_parameter\n(K\x01\x89NtR"), ErrUnsupported, "_rebuild_parameter"},
		"a tensor of a number":    {program(tensorOf("K\x01", 0, ")", ")")), ErrUnsupported, "_rebuild_tensor_v2"},
		"a shape of texts":        {program(tensorOf(eight, 0, "("+text("x")+"t", numbersOf(1))), ErrUnsupported, "_rebuild_tensor_v2"},
		"strides of texts":        {program(tensorOf(eight, 0, numbersOf(1), "("+text("x")+"t")), ErrUnsupported, "_rebuild_tensor_v2"},
		"a storage of a text":     {program(text("x") + "Q"), ErrFormat, "a text is no storage"},
		"a module's id":           {program("(" + text("module") + "NNNN" + "tQ"), ErrFormat, "is no storage"},
		"a storage of no class":   {program("(" + text("storage") + "N" + text("0") + text("cpu") + number(8) + "tQ"), ErrFormat, "a storage of None"},
		"a storage of a function": {program("(" + text("storage") + "ctorch\nSize\n" + text("0") + text("cpu") + number(8) + "tQ"), ErrFormat, "a storage of torch.Size"},
		"no such storage":         {program(storageOf("FloatStorage", "1", 8)), ErrFormat, `no storage "1"`},
		"a way out of the folder": {program(storageOf("FloatStorage", "../data.pkl", 8)), ErrFormat, "no storage"},
		"2 G elements":            {program(storageOf("FloatStorage", "0", 1<<31)), ErrFormat, "32 bytes, announced are 2147483648"},
		"an element less":         {program(storageOf("FloatStorage", "0", 7)), ErrFormat, "announced are 7"},
		"negative elements":       {program(storageOf("FloatStorage", "0", -8)), ErrFormat, "announced are -8"},
		"overflowing elements":    {program(storageOf("FloatStorage", "0", 8+1<<62)), ErrFormat, "announced"},
		"a shape too large":       {program(tensorOf(eight, 0, numbersOf(9), numbersOf(1))), ErrFormat, "reaches over 8"},
		"an offset too far":       {program(tensorOf(eight, 1, numbersOf(8), numbersOf(1))), ErrFormat, "reaches over 8"},
		"an offset of 9":          {program(tensorOf(eight, 9, numbersOf(0), numbersOf(1))), ErrFormat, "an offset of 9"},
		"a negative offset":       {program(tensorOf(eight, -1, numbersOf(1), numbersOf(1))), ErrFormat, "an offset of -1"},
		"a stride too far":        {program(tensorOf(eight, 0, numbersOf(2), numbersOf(8))), ErrFormat, "reaches over 8"},
		"a negative stride":       {program(tensorOf(eight, 7, numbersOf(8), numbersOf(-1))), ErrFormat, "a stride of -1"},
		"overflowing strides":     {program(tensorOf(eight, 0, numbersOf(3), numbersOf(math.MaxInt64))), ErrFormat, "reaches over 8"},
		"strides that wrap":       {program(tensorOf(eight, 0, numbersOf(2, 2, 2, 2), numbersOf(1<<62, 1<<62, 1<<62, 1<<62))), ErrFormat, "reaches over 8"},
		"a negative shape":        {program(tensorOf(eight, 0, numbersOf(-1), numbersOf(1))), ErrFormat, "a dimension of -1"},
		"other ranks":             {program(tensorOf(eight, 0, numbersOf(1, 1), numbersOf(1))), ErrFormat, "2 dimensions and 1"},
		"9 dimensions":            {program(tensorOf(eight, 0, numbersOf(1, 1, 1, 1, 1, 1, 1, 1, 1), numbersOf(1, 1, 1, 1, 1, 1, 1, 1, 1))), ErrUnsupported, "9 dimensions"},
		"an overflowing shape":    {program(tensorOf(eight, 0, numbersOf(1<<33, 1<<33), numbersOf(0, 0))), ErrLimit, "shape"},
		"an expanded element":     {program(tensorOf(eight, 0, numbersOf(1<<40), numbersOf(0))), ErrLimit, "bytes are left"},
		"65 marks":                {program(deep), ErrLimit, "65 marks"},
		"an endless program":      {program(strings.Repeat("Nq\x00", 100000)), ErrLimit, ""},
		"many instructions":       {program("]" + strings.Repeat("Na", 1<<17)), ErrLimit, "instructions"},
		"a large program":         {program(strings.Repeat("X\x00\x00\x00\x00", 1<<18)), ErrLimit, "bytes, 1048576"},
		"many remembered values":  {program("N" + strings.Repeat("\x94", 70000)), ErrLimit, "65537 remembered"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(torchFile(t, c.program, make([]byte, 32)), Limits{})
			if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.text)
			}
		})
	}
}

// Many tensors may show one storage over and over: together they have a limit.
func TestReadBoundsAllTensorsTogether(t *testing.T) {
	body := "}" + text(MainName) + tensorOf(eight, 0, numbersOf(16), numbersOf(0)) + "s"
	for i := range 15 {
		body += text(fmt.Sprint("x", i)) + tensorOf(eight, 0, numbersOf(16), numbersOf(0)) + "s"
	}
	data := torchFile(t, program(body), make([]byte, 32))
	if f, err := Read(data, Limits{Bytes: 1 << 14}); err != nil || len(f.Auxiliary) != 15 {
		t.Errorf("%v", err)
	}
	if len(data) > 4096+64*16 {
		t.Fatalf("the file has %d bytes", len(data))
	}
	if _, err := Read(data, Limits{Tensors: 16}); err != nil {
		t.Errorf("16 tensors, 16 allowed: %v", err)
	}
	if _, err := Read(data, Limits{Tensors: 15}); !errors.Is(err, ErrLimit) {
		t.Errorf("16 tensors: %v", err)
	}
	wide := torchFile(t, program("}"+text(MainName)+tensorOf(eight, 0, numbersOf(1000), numbersOf(0))+"s"+text("x")+tensorOf(eight, 0, numbersOf(1000), numbersOf(0))+"s"), make([]byte, 32))
	for _, c := range []struct {
		bytes int
		over  bool
	}{{8000, false}, {7999, true}} {
		if _, err := Read(wide, Limits{Bytes: c.bytes}); errors.Is(err, ErrLimit) != c.over {
			t.Errorf("8000 bytes of tensors, %d allowed: %v", c.bytes, err)
		}
	}
	// One list under many keys.
	shared := torchFile(t, program("}"+text(MainName)+plain+"s"+text("x0")+"]("+strings.Repeat("K\x01", 500)+"eq\x00s"+text("x1")+"h\x00s"), make([]byte, 32))
	for _, c := range []struct {
		bytes int
		over  bool
	}{{32 + 8000, false}, {31 + 8000, true}} {
		if _, err := Read(shared, Limits{Bytes: c.bytes}); errors.Is(err, ErrLimit) != c.over {
			t.Errorf("8032 bytes with lists, %d allowed: %v", c.bytes, err)
		}
	}
	if _, err := Read(wide, Limits{Bytes: len(wide) - 1}); !errors.Is(err, ErrLimit) {
		t.Errorf("a file over the limit: %v", err)
	}
}

func TestReadRefusesHostileArchives(t *testing.T) {
	pkl := string(program(tensorOf(eight, 0, numbersOf(8), numbersOf(1))))
	good := []entry{{name: "a/data.pkl", content: pkl}, {name: "a/data/0", content: string(make([]byte, 32))}, {name: "a/byteorder", content: "little"}, {name: "a/version", content: "3\n"}}
	if f, err := Read(archiveOf(t, good...), Limits{}); err != nil || len(f.Embeddings.Data) != 32 {
		t.Fatalf("the good archive: %v", err)
	}
	with := func(at int, e entry) []byte {
		entries := append([]entry(nil), good...)
		entries[at] = e
		return archiveOf(t, entries...)
	}
	damaged := archiveOf(t, good...)
	damaged[bytes.Index(damaged, []byte("a/data/0"))+12]++
	directory := bytes.LastIndex(archiveOf(t, good...), []byte("PK\x01\x02"))
	// The directory says that the last entry is as large as the first.
	longer := archiveOf(t, good...)
	binary.LittleEndian.PutUint32(longer[directory+20:], 1<<20)
	binary.LittleEndian.PutUint32(longer[directory+24:], 1<<20)
	// Stored, and yet of two sizes.
	uneven := archiveOf(t, good...)
	binary.LittleEndian.PutUint32(uneven[directory+20:], 1)
	var many []entry
	for i := range maxEntries + 1 {
		many = append(many, entry{name: fmt.Sprint("a/", i)})
	}
	for name, c := range map[string]struct {
		data []byte
		kind error
		text string
	}{
		"empty":              {archiveOf(t), ErrFormat, "no data.pkl"},
		"no program":         {archiveOf(t, good[1:]...), ErrFormat, "no data.pkl"},
		"a compressed entry": {with(1, entry{"a/data/0", string(make([]byte, 1<<20)), zip.Deflate}), ErrUnsupported, "compressed"},
		"an entry twice":     {with(2, good[1]), ErrFormat, "two entries"},
		"an absolute name":   {with(2, entry{name: "/a/byteorder"}), ErrFormat, "is called"},
		"a way out":          {with(2, entry{name: "a/../../x"}), ErrFormat, "is called"},
		"a backslash":        {with(2, entry{name: `a/x\y`}), ErrFormat, "is called"},
		"a folder":           {with(2, entry{name: "a/x/"}), ErrFormat, "is called"},
		"another folder":     {with(2, entry{name: "b/x"}), ErrFormat, "not in the folder"},
		"no folder":          {with(2, entry{name: "a"}), ErrFormat, "not in the folder"},
		"big-endian":         {with(2, entry{name: "a/byteorder", content: "big"}), ErrUnsupported, "byte order"},
		"a short storage":    {with(1, entry{name: "a/data/0", content: "1234567"}), ErrFormat, "7 bytes"},
		"stored in fewer":    {uneven, ErrUnsupported, "compressed"},
		"damaged":            {damaged, ErrFormat, "damaged"},
		"longer than it is":  {longer, ErrFormat, "reaches over its end"},
		"many entries":       {archiveOf(t, many...), ErrLimit, "4097 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(c.data, Limits{})
			if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.text)
			}
		})
	}
}

// Entries that lie over each other would let a small file hold much.
func TestReadRefusesOverlappingEntries(t *testing.T) {
	content := string(make([]byte, 4096))
	data := archiveOf(t, entry{name: "a/0", content: content}, entry{name: "a/1", content: content}, entry{name: "a/2", content: content})
	// All entries of the directory name the first one's place and content.
	first := bytes.Index(data, []byte("PK\x01\x02"))
	local := data[:30+3+4096+16] // with its descriptor
	directory := bytes.ReplaceAll(data[first:], []byte{}, nil)
	var out bytes.Buffer
	out.Write(local)
	at := out.Len()
	for i := 0; i < len(directory); {
		if !bytes.HasPrefix(directory[i:], []byte("PK\x01\x02")) {
			end := bytes.Clone(directory[i:])
			binary.LittleEndian.PutUint32(end[16:], uint32(at))
			out.Write(end)
			break
		}
		n := 46 + 3
		record := bytes.Clone(directory[i : i+n])
		binary.LittleEndian.PutUint32(record[42:], 0)
		out.Write(record)
		i += n
	}
	if _, err := Read(out.Bytes(), Limits{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "reaches over its end") {
		t.Errorf("%v", err)
	}
}

func safetensorsFile(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestReadSafetensors(t *testing.T) {
	one := `{"x":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}`
	three := `{"z":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"mm_embeddings":{"dtype":"F16","shape":[4],"data_offsets":[8,16]},"a":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}}`
	f, err := Read(safetensorsFile(one, 8), Limits{})
	if err != nil || f.Embeddings.Name != "x" || f.Embeddings.DType != "BF16" || len(f.Embeddings.Data) != 8 || len(f.Auxiliary) != 0 {
		t.Errorf("one tensor: %+v, %v", f, err)
	}
	f, err = Read(safetensorsFile(three, 19), Limits{})
	if err != nil || f.Embeddings.Name != MainName || f.Embeddings.DType != "F16" || len(f.Auxiliary) != 2 || f.Auxiliary[0].Name != "a" || f.Auxiliary[1].Name != "z" {
		t.Errorf("three tensors: %+v, %v", f, err)
	}
	if _, err := Read(safetensorsFile(three, 19), Limits{Tensors: 2}); !errors.Is(err, ErrLimit) {
		t.Errorf("more tensors than are allowed: %v", err)
	}
	for name, data := range map[string][]byte{
		"nothing":     nil,
		"text":        []byte("mm_embeddings"),
		"a short one": safetensorsFile(one, 7),
		"a long one":  safetensorsFile(one, 9),
		"no main one": safetensorsFile(strings.ReplaceAll(three, "mm_", "nn_"), 19),
		"no tensor":   safetensorsFile("{}", 0),
		"a header of 128 bytes, which begins as a pickle does": safetensorsFile(one+strings.Repeat(" ", 128-len(one)), 7),
	} {
		if _, err := Read(data, Limits{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckFinite(t *testing.T) {
	little := binary.LittleEndian
	for _, c := range []struct {
		tensor Tensor
		finite bool
	}{
		{Tensor{DType: "F32", Data: little.AppendUint32(little.AppendUint32(nil, math.Float32bits(math.MaxFloat32)), 0)}, true},
		{Tensor{DType: "F32", Data: little.AppendUint32(little.AppendUint32(nil, 0), math.Float32bits(float32(math.Inf(-1))))}, false},
		{Tensor{DType: "F64", Data: little.AppendUint64(nil, math.Float64bits(-math.MaxFloat64))}, true},
		{Tensor{DType: "F64", Data: little.AppendUint64(nil, math.Float64bits(math.NaN()))}, false},
		{Tensor{DType: "F16", Data: little.AppendUint16(nil, 0x7bff)}, true},
		{Tensor{DType: "F16", Data: little.AppendUint16(nil, 0xfc00)}, false},
		{Tensor{DType: "BF16", Data: little.AppendUint16(nil, 0x7f7f)}, true},
		{Tensor{DType: "BF16", Data: little.AppendUint16(nil, 0x7fc0)}, false},
		{Tensor{DType: "I32", Data: little.AppendUint32(nil, 0xffffffff)}, true},
	} {
		if err := c.tensor.CheckFinite(); (err == nil) != c.finite || err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("%s %x: %v", c.tensor.DType, c.tensor.Data, err)
		}
	}
}
