package config

import (
	"slices"
	"strings"
)

// TLSFile is a setting that names a file for TLS.
type TLSFile struct {
	Setting string // its name
	Value   string // a path, or the PEM text itself as Dynamo's variables hold it; empty for none
}

// Inline reports whether the value is the PEM text itself.
func (f TLSFile) Inline() bool { return isPEM(f.Value) }

func isPEM(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN") }

// TLSFiles are the settings of one kind of TLS connections. Each may be empty.
type TLSFiles struct {
	// CA holds authorities: of the other side's certificates.
	CA TLSFile
	// Cert holds the own certificate, and Key its key.
	Cert, Key TLSFile
}

// Any reports whether a file is configured.
func (f TLSFiles) Any() bool { return f.Named() != "" }

// Named returns the first of the settings Cert and CA that has a value.
func (f TLSFiles) Named() string {
	for _, s := range []TLSFile{f.Cert, f.CA} {
		if s.Value != "" {
			return s.Setting
		}
	}
	return ""
}

// Section returns the section of the settings, such as "etcd".
func (f TLSFiles) Section() string {
	section, _, _ := strings.Cut(f.Cert.Setting, ".")
	return section
}

func tlsFiles(prefix, ca, cert, key string) TLSFiles {
	return TLSFiles{TLSFile{prefix + "ca_file", ca}, TLSFile{prefix + "cert_file", cert}, TLSFile{prefix + "key_file", key}}
}

// TLSFiles returns the files for connections to etcd.
func (e EtcdClient) TLSFiles() TLSFiles { return tlsFiles("etcd.", e.CAFile, e.CertFile, e.KeyFile) }

// WantsTLS reports whether an endpoint or a file asks for TLS.
func (e EtcdClient) WantsTLS() bool {
	return e.TLSFiles().Any() || slices.ContainsFunc(e.Endpoints, func(ep string) bool { return strings.HasPrefix(ep, "https://") })
}

// TLSFiles returns the files for transfers over TCP, as client and as server. TLS is on with
// a certificate.
func (n NIXL) TLSFiles() TLSFiles {
	return tlsFiles("nixl.tls_", n.TLSCAFile, n.TLSCertFile, n.TLSKeyFile)
}

// TLSServer makes a server speak TLS. The files are paths, or the PEM text itself.
type TLSServer struct {
	TLSCertFile     string `mapstructure:"tls_cert_file"`
	TLSKeyFile      string `mapstructure:"tls_key_file"`
	TLSClientCAFile string `mapstructure:"tls_client_ca_file"`
}

func (s TLSServer) files(section string) TLSFiles {
	f := tlsFiles(section+".tls_", s.TLSClientCAFile, s.TLSCertFile, s.TLSKeyFile)
	f.CA.Setting = section + ".tls_client_ca_file"
	return f
}

// TLSFiles returns the files of the frontend. It serves HTTPS with a certificate.
func (f Frontend) TLSFiles() TLSFiles { return f.files("frontend") }

// TLSFiles returns the files of the status server. It serves HTTPS with a certificate.
func (s Status) TLSFiles() TLSFiles { return s.files("status") }

// TLSFiles returns the files for connections to frontends.
func (f FrontendClient) TLSFiles() TLSFiles {
	return tlsFiles("frontend.", f.CAFile, f.CertFile, f.KeyFile)
}

// TLSFiles returns the files for connections to NATS.
func (n NATSClient) TLSFiles() TLSFiles { return tlsFiles("nats.", n.CAFile, n.CertFile, n.KeyFile) }

// WantsTLS reports whether the URL or a file asks for TLS.
func (n NATSClient) WantsTLS() bool {
	return n.TLSFiles().Any() || strings.Contains(n.URL, "tls://") || strings.Contains(n.URL, "wss://")
}

// pair checks that a certificate has a key and the other way round. With needsCA, it must
// come with authorities; with needsCert, authorities must come with it.
func (v *validator) pair(f TLSFiles, needsCA, needsCert bool) {
	need := func(what, because TLSFile) bool {
		if because.Value == "" || what.Value != "" {
			return false
		}
		v.wrong(what.Setting, "is not set, but %s is", because.Setting)
		return true
	}
	_ = need(f.Key, f.Cert) || need(f.Cert, f.Key) || needsCA && need(f.CA, f.Cert) || needsCert && need(f.Cert, f.CA)
}
