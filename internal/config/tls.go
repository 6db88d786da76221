package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
)

// TLS returns the TLS settings for connections to etcd, or nil when neither a
// certificate nor an https endpoint asks for TLS. readFile reads the files,
// usually os.ReadFile.
func (e EtcdClient) TLS(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	https := false
	for _, ep := range e.Endpoints {
		https = https || strings.HasPrefix(ep, "https://")
	}
	if e.CAFile == "" && e.CertFile == "" && !https {
		return nil, nil
	}
	return tlsConfig("etcd.", e.CAFile, e.CertFile, e.KeyFile, readFile)
}

// TLS returns the TLS settings for transfers over TCP, as client and server, or nil
// when no certificate asks for TLS. readFile reads the files, usually os.ReadFile.
func (n NIXL) TLS(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	if n.TLSCertFile == "" {
		return nil, nil
	}
	cfg, err := tlsConfig("nixl.tls_", n.TLSCAFile, n.TLSCertFile, n.TLSKeyFile, readFile)
	if err == nil {
		cfg.ServerName = n.TLSServerName
	}
	return cfg, err
}

// tlsConfig reads authorities and a certificate, either of which may be empty. Errors
// name the key, which begins with prefix.
func tlsConfig(prefix, ca, cert, key string, readFile func(string) ([]byte, error)) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := pemText(ca, readFile)
		if err != nil {
			return nil, fmt.Errorf("%sca_file: %w", prefix, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca_file: no certificate in it", prefix)
		}
	}
	if cert != "" {
		certPEM, err := pemText(cert, readFile)
		if err != nil {
			return nil, fmt.Errorf("%scert_file: %w", prefix, err)
		}
		keyPEM, err := pemText(key, readFile)
		if err != nil {
			return nil, fmt.Errorf("%skey_file: %w", prefix, err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("%scert_file: %w", prefix, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// pemText accepts a path or the PEM text itself, as Dynamo's variables hold it.
func pemText(fileOrText string, readFile func(string) ([]byte, error)) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(fileOrText), "-----BEGIN") {
		return []byte(fileOrText), nil
	}
	return readFile(fileOrText)
}
