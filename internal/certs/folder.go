package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/ownerfile"
)

// Folder is a directory with an authority, in ca.pem and ca-key.pem, and certificates that
// it signed, in NAME.pem and NAME-key.pem. Only the owner may read its files.
type Folder struct {
	Dir string
	Now func() time.Time // nil means time.Now
}

// authorityName is the name of the authority's files.
const authorityName = "ca"

// Kinds of certificates.
const (
	KindAuthority = "authority"
	KindServer    = "server" // of a server that may also be a client
	KindClient    = "client"
)

// Certificate describes one certificate of a folder.
type Certificate struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Hosts    []string  `json:"hosts"` // names and addresses of a server
	Ends     time.Time `json:"ends"`
	CertFile string    `json:"cert_file"`
	KeyFile  string    `json:"key_file"`
	// Valid is false for one that has ended, or that the authority of the folder did not
	// sign.
	Valid bool `json:"valid"`
}

// ErrExists is returned for files that are there already. They are never overwritten.
var ErrExists = errors.New("exists already")

func (f Folder) now() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

func (f Folder) certFile(name string) string { return filepath.Join(f.Dir, name+".pem") }
func (f Folder) keyFile(name string) string  { return filepath.Join(f.Dir, name+"-key.pem") }

// create writes the files of a new certificate, the key first: a certificate always has one.
func (f Folder) create(name string, p pair) error {
	for _, path := range []string{f.certFile(name), f.keyFile(name)} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s %w", path, ErrExists)
		}
	}
	return f.write(p, name, ownerfile.Create)
}

func (f Folder) write(p pair, name string, write func(string, []byte) error) error {
	for _, file := range []struct {
		path string
		text []byte
	}{{f.keyFile(name), p.key}, {f.certFile(name), p.cert}} {
		if err := write(file.path, file.text); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s %w", file.path, ErrExists)
		} else if err != nil {
			return fmt.Errorf("write %s: %w", file.path, err)
		}
	}
	return nil
}

// Init makes the directory and the authority, which ends after some days.
func (f Folder) Init(days int) (Certificate, error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return Certificate{}, fmt.Errorf("make the directory of the certificates: %w", err)
	}
	p, err := newAuthority(f.now(), days)
	if err == nil {
		err = f.create(authorityName, p)
	}
	if err != nil {
		return Certificate{}, fmt.Errorf("make a certificate authority: %w", err)
	}
	return f.describe(authorityName, nil)
}

// Request asks for a certificate.
type Request struct {
	Name   string
	Client bool
	// Hosts are names and addresses at which a server is reached, beside its name and
	// loopback. A client has none.
	Hosts []string
	Days  int // until it ends; never after the authority
	// Renew replaces a certificate of that name by one for the same kind and hosts, to which
	// Hosts are added.
	Renew bool
}

// fileName and hostName match what can be part of a file's name, and what certificates name.
var (
	fileName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// Issue makes a certificate of the folder's authority.
func (f Folder) Issue(r Request) (Certificate, error) {
	c, err := f.issue(r)
	if err != nil {
		return c, fmt.Errorf("make the certificate %s: %w", r.Name, err)
	}
	return c, nil
}

// Check returns an error for what no certificate can have.
func (r Request) Check() error {
	if !fileName.MatchString(r.Name) || r.Name == authorityName || strings.HasSuffix(r.Name, "-key") {
		return errors.New("the name must be letters, digits, dots, - and _, and neither ca nor end in -key")
	}
	if r.Client && len(r.Hosts) > 0 {
		return errors.New("a certificate of a client has no hosts: etcd would compare them with the client's address")
	}
	for _, h := range r.Hosts {
		if net.ParseIP(h) == nil && !hostName.MatchString(h) {
			return fmt.Errorf("%q is neither the name of a host nor an address", h)
		}
	}
	return nil
}

func (f Folder) issue(r Request) (Certificate, error) {
	if err := r.Check(); err != nil {
		return Certificate{}, err
	}
	ca, err := tls.LoadX509KeyPair(f.certFile(authorityName), f.keyFile(authorityName))
	if err != nil {
		return Certificate{}, err
	}
	if r.Renew {
		old, err := f.describe(r.Name, nil)
		if err != nil {
			return Certificate{}, err
		}
		r.Client, r.Hosts = old.Kind == KindClient, append(old.Hosts, r.Hosts...)
	} else if !r.Client {
		r.Hosts = append([]string{r.Name, "localhost", "127.0.0.1", "::1"}, r.Hosts...)
	}
	if err := r.Check(); err != nil { // with what the old certificate says
		return Certificate{}, err
	}
	slices.Sort(r.Hosts)
	r.Hosts = slices.Compact(r.Hosts)
	p, err := newLeaf(ca, r, f.now())
	if err != nil {
		return Certificate{}, err
	}
	if r.Renew {
		err = f.write(p, r.Name, ownerfile.Replace)
	} else {
		err = f.create(r.Name, p)
	}
	if err != nil {
		return Certificate{}, err
	}
	return f.describe(r.Name, nil)
}

// List describes all certificates of the folder, the authority first. The error wraps
// [fs.ErrNotExist] if there is no authority.
func (f Folder) List() ([]Certificate, error) {
	text, err := os.ReadFile(f.certFile(authorityName))
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	files, err := filepath.Glob(f.certFile("*"))
	if err != nil {
		return nil, err
	}
	var all []Certificate
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".pem")
		if strings.HasSuffix(name, "-key") {
			continue
		}
		c, err := f.describe(name, roots)
		if err != nil {
			return nil, err
		}
		if name == authorityName {
			all = slices.Insert(all, 0, c)
		} else {
			all = append(all, c)
		}
	}
	return all, nil
}

// describe reads a certificate; roots are the folder's authority, nil to read it.
func (f Folder) describe(name string, roots *x509.CertPool) (Certificate, error) {
	c := Certificate{Name: name, Kind: KindClient, Hosts: []string{}, CertFile: f.certFile(name), KeyFile: f.keyFile(name)}
	text, err := os.ReadFile(c.CertFile)
	if err != nil {
		return c, fmt.Errorf("read a certificate: %w", err)
	}
	list, err := certificates(text)
	if err != nil {
		return c, fmt.Errorf("read %s: %w", c.CertFile, err)
	}
	if roots == nil {
		ca, err := os.ReadFile(f.certFile(authorityName))
		if err != nil {
			return c, fmt.Errorf("read the certificate authority: %w", err)
		}
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
	}
	leaf := list[0]
	for _, ip := range leaf.IPAddresses {
		c.Hosts = append(c.Hosts, ip.String())
	}
	c.Hosts, c.Ends = append(c.Hosts, leaf.DNSNames...), leaf.NotAfter
	switch {
	case leaf.IsCA:
		c.Kind = KindAuthority
	case slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth):
		c.Kind = KindServer
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: f.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	c.Valid = err == nil
	return c, nil
}
