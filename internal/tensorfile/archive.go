package tensorfile

import (
	"archive/zip"
	"bytes"
	"hash/crc32"
	"io/fs"
	"strings"
)

const maxEntries = 4096 // of an archive

// archive holds the entries of a file of torch.save by their names below its one folder.
type archive map[string][]byte

// openArchive reads the directory of a zip file. Entries are not compressed, so none is
// larger than the file; together they are not either, which entries that overlap would be.
func openArchive(data []byte) (archive, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, formatf("%w", err)
	}
	if len(z.File) > maxEntries {
		return nil, limitf("%d entries in the archive, %d are allowed", len(z.File), maxEntries)
	}
	a := archive{}
	folder, total := "", uint64(0)
	for _, f := range z.File {
		if !fs.ValidPath(f.Name) || strings.Contains(f.Name, `\`) {
			return nil, formatf("an entry of the archive is called %.100q", f.Name)
		}
		top, name, ok := strings.Cut(f.Name, "/")
		if folder == "" {
			folder = top
		}
		if !ok || top != folder {
			return nil, formatf("entry %.100q of the archive is not in the folder of the others, %.100q", f.Name, folder)
		}
		if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
			return nil, unsupportedf("entry %.100q of the archive is compressed", f.Name)
		}
		if _, twice := a[name]; twice {
			return nil, formatf("two entries of the archive are called %.100q", f.Name)
		}
		start, err := f.DataOffset()
		if err != nil {
			return nil, formatf("entry %.100q of the archive: %w", f.Name, err)
		}
		total += min(f.UncompressedSize64, 1<<62)
		if rest := int64(len(data)) - start; total > uint64(len(data)) || rest < 0 || f.UncompressedSize64 > uint64(rest) {
			return nil, formatf("entry %.100q of the archive reaches over its end", f.Name)
		}
		a[name] = data[start:][:f.UncompressedSize64:f.UncompressedSize64]
		if crc32.ChecksumIEEE(a[name]) != f.CRC32 {
			return nil, formatf("entry %.100q of the archive is damaged", f.Name)
		}
	}
	return a, nil
}
