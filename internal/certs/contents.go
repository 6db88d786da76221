package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

// contents are what files hold at one time.
type contents struct {
	raw [3][]byte // authorities, certificate, key
	sum [32]byte  // of raw, and of the error of reading it

	authorities *x509.CertPool   // nil without a file
	pair        *tls.Certificate // nil without a file
	begins      time.Time        // zero without a certificate
	ends        time.Time
}

// read reads the files that are configured. With an error, the contents have only a sum.
func read(files config.TLSFiles) (*contents, error) {
	c := &contents{}
	h := sha256.New()
	var err error
	for i, file := range []config.TLSFile{files.CA, files.Cert, files.Key} {
		text, rerr := []byte(file.Value), error(nil)
		if file.Value != "" && !file.Inline() {
			text, rerr = os.ReadFile(file.Value)
		}
		if rerr != nil && err == nil {
			err = fmt.Errorf("%s: %w", file.Setting, rerr)
		}
		c.raw[i] = text
		_, _ = fmt.Fprintf(h, "%d %v\n%s", len(text), rerr, text) // never fails
	}
	h.Sum(c.sum[:0])
	return c, err
}

// parse fills in the rest from raw.
func (c *contents) parse(files config.TLSFiles) error {
	if files.CA.Value != "" {
		list, err := certificates(c.raw[0])
		if err != nil {
			return fmt.Errorf("%s: %w", files.CA.Setting, err)
		}
		c.authorities = x509.NewCertPool()
		for _, ca := range list {
			c.authorities.AddCert(ca)
			if ca.NotAfter.After(c.ends) {
				c.ends = ca.NotAfter
			}
		}
	}
	if files.Cert.Value == "" {
		return nil
	}
	pair, err := tls.X509KeyPair(c.raw[1], c.raw[2])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", files.Cert.Setting, files.Key.Setting, err)
	}
	c.pair, c.begins = &pair, pair.Leaf.NotBefore
	if c.ends.IsZero() || pair.Leaf.NotAfter.Before(c.ends) {
		c.ends = pair.Leaf.NotAfter
	}
	return nil
}

// outlives returns an error if the new contents are not valid now while the old ones are.
func (c *contents) outlives(old *contents, now time.Time) error {
	switch {
	case !old.valid(now) || c.valid(now):
		return nil
	case now.Before(c.begins):
		return fmt.Errorf("it is valid from %s only", c.begins.Format(time.RFC3339))
	}
	return fmt.Errorf("it ended at %s", c.ends.Format(time.RFC3339))
}

func (c *contents) valid(now time.Time) bool {
	return !now.Before(c.begins) && (c.ends.IsZero() || now.Before(c.ends))
}

// certificates parses all certificates of a PEM text.
func certificates(text []byte) (list []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return list, nil
}
