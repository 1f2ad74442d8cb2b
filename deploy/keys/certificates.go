package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifeDays is the validity of certificates in days.
const lifeDays = 3 * 365

// authority signs certificates. Its key is never stored: for another certificate make all
// of them again, or use an authority of your own.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// makeCertificates writes two CA certificates, ca.pem for client connections and
// route-ca.pem for routes between nodes, and a certificate of each for every node. They
// are two so that a certificate for client connections is none for routes.
func makeCertificates(f *files, hosts []string) {
	clients := newAuthority(f, "lapse clients", "ca.pem")
	routes := newAuthority(f, "lapse routes", "route-ca.pem")
	if f.err != nil {
		return
	}
	for n := 1; n <= 3; n++ {
		node := fmt.Sprintf("nats-%d", n)
		clients.issue(f, node, "", append([]string{node}, hosts...), x509.ExtKeyUsageServerAuth)
		routes.issue(f, node, "route-", append([]string{node}, hosts...), x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	}
}

// newAuthority makes an authority and writes its certificate. After an error it is
// unusable, and f.err is set.
func newAuthority(f *files, name, file string) *authority {
	a := &authority{certificate: template(name)}
	a.certificate.IsCA, a.certificate.BasicConstraintsValid, a.certificate.MaxPathLenZero = true, true, true
	a.certificate.KeyUsage = x509.KeyUsageCertSign
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	f.fail(err)
	if f.err != nil {
		return a
	}
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, a.key.Public(), a.key)
	f.fail(err)
	f.write(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// issue writes NODE/PREFIXcert.pem and NODE/PREFIXkey.pem. Route certificates serve both
// sides: each node connects to the others and is connected to.
func (a *authority) issue(f *files, node, prefix string, hosts []string, uses ...x509.ExtKeyUsage) {
	c := template(node)
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, uses
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else if host != "" {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	f.fail(err)
	if f.err != nil {
		return
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.certificate, key.Public(), a.key)
	f.fail(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	f.fail(err)
	f.write(node+"/"+prefix+"cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	f.write(node+"/"+prefix+"key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// template returns what all certificates have in common.
func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.AddDate(0, 0, lifeDays),
	}
}
