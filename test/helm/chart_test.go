package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens")

const root = "../.."

var dir = filepath.Join(root, "deploy/helm/lapse")

// render renders the chart with values in YAML, as helm template does. It returns one text
// for each object, in the order of the files.
func render(t *testing.T, values string) ([]string, error) {
	t.Helper()
	chart, err := loader.Load(dir)
	check(t, err)
	given, err := chartutil.ReadValues([]byte(values))
	check(t, err)
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "lapse", Namespace: "data", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var names, objects []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		for _, object := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			if object = strings.TrimSpace(object); object != "" {
				objects = append(objects, object+"\n")
			}
		}
	}
	return objects, nil
}

// certificate has what the chart uses of cert-manager's type.
type certificate struct {
	APIVersion, Kind string
	Metadata         struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		SecretName string
		DNSNames   []string
		PrivateKey struct{ RotationPolicy string }
		IssuerRef  struct{ Name, Kind, Group string }
	}
}

// decode decodes an object into its Kubernetes type, and refuses what the type does not know.
func decode(t *testing.T, text string) (kind string, object any) {
	t.Helper()
	var meta struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	types := map[string]any{
		"apps/v1 StatefulSet":                     &apps.StatefulSet{},
		"v1 Service":                              &core.Service{},
		"v1 ServiceAccount":                       &core.ServiceAccount{},
		"v1 ConfigMap":                            &core.ConfigMap{},
		"v1 Secret":                               &core.Secret{},
		"cert-manager.io/v1 Certificate":          &certificate{},
		"policy/v1 PodDisruptionBudget":           &policy.PodDisruptionBudget{},
		"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
		"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
	}
	object = types[meta.APIVersion+" "+meta.Kind]
	if object == nil {
		t.Fatalf("unknown kind %s %s", meta.APIVersion, meta.Kind)
	}
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Errorf("%s: %v:\n%s", meta.Kind, err, text)
	}
	return meta.Kind, object
}

// TestGoldens: each file of values in testdata gives the manifests beside it, which decode
// strictly.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".values.yaml"), func(t *testing.T) {
			values, err := os.ReadFile(file)
			check(t, err)
			objects, err := render(t, string(values))
			check(t, err)
			golden := strings.Replace(file, ".values.", ".golden.", 1)
			var kept []string // alerts and dashboard are those of other files, tested below
			for _, one := range objects {
				kind, object := decode(t, one)
				if config, ok := object.(*core.ConfigMap); kind != "PrometheusRule" && !(ok && config.Data["lapse.json"] != "") {
					kept = append(kept, one)
				}
			}
			got := strings.Join(kept, "---\n")
			if *rewrite {
				check(t, os.WriteFile(golden, []byte(got), 0o666))
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%s differs (%v): look at go -C test/helm test -rewrite; got\n%s", golden, err, got)
			}
		})
	}
}

// of returns the objects of a type.
func of[T any](t *testing.T, values string) (all []*T) {
	t.Helper()
	objects, err := render(t, values)
	check(t, err)
	for _, one := range objects {
		if _, object := decode(t, one); object != nil {
			if typed, ok := object.(*T); ok {
				all = append(all, typed)
			}
		}
	}
	return all
}

const open = "embedded: {noAuth: true}\n"

const monitored = open + "monitoring: {serviceMonitor: true, prometheusRule: true, dashboard: true}"

// TestVersion: the chart is of the version that CHANGELOG.md names first, and runs it.
func TestVersion(t *testing.T) {
	chart, err := loader.Load(dir)
	check(t, err)
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	check(t, err)
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindSubmatch(text)
	if newest == nil || chart.Metadata.Version != string(newest[1]) || chart.AppVersion() != string(newest[1]) {
		t.Errorf("the chart is %s of lapse %s; CHANGELOG.md has %s", chart.Metadata.Version, chart.AppVersion(), newest)
	}
}

// TestMonitoring: alerts and dashboard are the files of deploy, which the chart links to.
func TestMonitoring(t *testing.T) {
	rules := of[monitoring.PrometheusRule](t, monitored)
	if len(rules) != 1 {
		t.Fatalf("%d PrometheusRule", len(rules))
	}
	var want monitoring.PrometheusRuleSpec
	text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/rules.yml"))
	check(t, err)
	check(t, yaml.UnmarshalStrict(text, &want))
	wantText, _ := yaml.Marshal(want)
	if gotText, _ := yaml.Marshal(rules[0].Spec); string(gotText) != string(wantText) {
		t.Errorf("its rules are\n%s", gotText)
	}
	dashboard := ""
	for _, config := range of[core.ConfigMap](t, monitored) {
		dashboard += config.Data["lapse.json"]
	}
	if original, err := os.ReadFile(filepath.Join(root, "deploy/grafana/lapse.json")); err != nil || strings.TrimSpace(dashboard) != strings.TrimSpace(string(original)) {
		t.Errorf("the dashboard is not that of deploy/grafana (%v)", err)
	}
}

// TestManual: the values in docs/install.md give a server with users and TLS.
func TestManual(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/install.md"))
	check(t, err)
	values := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if values == nil {
		t.Fatal("it has none")
	}
	args := of[apps.StatefulSet](t, string(values[1]))[0].Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--user=app=/etc/lapse/users/app", "--tls-cert=/etc/lapse/tls/tls.crt", "--tls-key=/etc/lapse/tls/tls.key"} {
		if !slices.Contains(args, want) {
			t.Errorf("%q lack %s", args, want)
		}
	}
	if made := len(of[core.Secret](t, string(values[1]))) + len(of[certificate](t, string(values[1]))); made != 2 {
		t.Errorf("%d Secrets and Certificates", made)
	}
}

// TestRefused: values that cannot be served are refused by the schema or by one line.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		"":                            "embedded.noAuth",
		"embedded: {users: {app: x}}": "embedded.tls.secret",
		"embedded: {users: {app: null}, noTLS: true}":                                   "give app a password",
		"embedded: {users: {app: 7}, noTLS: true}":                                      "app",
		"embedded: {users: {a.b: x}, noTLS: true}":                                      "a.b",
		"extraEnv: {A: b}":                                                              "extraEnv",
		"mode: cluster\nnats: {url: nats://n1, secret: s}\nembedded: {users: {app: x}}": "embedded.users",
		"mode: other":        "mode",
		open + "replicas: 2": "mode embedded has 1 pod",
		"mode: cluster\nnats: {url: nats://n1, secret: s}\nreplicas: 1": "mode cluster has 2 pods",
		"mode: cluster\nnats: {secret: s}":                              "nats.url",
		"mode: cluster\nnats: {url: nats://n1, secret: s, login: x}":    "login",
		"unknown: 1":                        "unknown",
		"storage: {size: much}":             "size",
		"image: {pullPolicy: Sometimes}":    "pullPolicy",
		"terminationGracePeriodSeconds: 10": "terminationGracePeriodSeconds",
	} {
		objects, err := render(t, values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v and %d objects", values, err, len(objects))
		}
	}
}

// TestArguments: lapse config accepts the arguments of every golden.
func TestArguments(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "lapse")
	build := exec.Command("go", "build", "-o", binary, "./cmd/lapse")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pod := t.TempDir() // the files of its volumes
	cert, key := selfSigned(t)
	for name, text := range map[string][]byte{"app": []byte("secret"), "billing": []byte("secret"), "tls.crt": cert, "tls.key": key} {
		check(t, os.WriteFile(filepath.Join(pod, name), text, 0o440))
	}
	files, err := filepath.Glob("testdata/*.values.yaml")
	check(t, err)
	for _, file := range files {
		values, err := os.ReadFile(file)
		check(t, err)
		args := of[apps.StatefulSet](t, string(values))[0].Spec.Template.Spec.Containers[0].Args
		if args[0] != "serve" {
			t.Errorf("%s runs %s", file, args)
		}
		args = slices.DeleteFunc(args[1:], func(arg string) bool { return strings.HasPrefix(arg, "--nats-config=") }) // a file of the pod
		if strings.Contains(file, "config") {
			args = append(args, "--no-auth") // whose users are in that file
		}
		for i, arg := range args {
			args[i] = strings.NewReplacer("/etc/lapse/users/", pod+"/", "/etc/lapse/tls/", pod+"/").Replace(arg)
		}
		if out, err := exec.Command(binary, append([]string{"config"}, args...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: lapse config %s: %v: %s", file, strings.Join(args, " "), err, out)
		}
	}
}

// selfSigned makes a certificate and its key.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	check(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// TestPods: each pod has no root, can write to its volumes only, and gets the time that
// lapse takes to stop.
func TestPods(t *testing.T) {
	for _, values := range []string{open, "embedded: {users: {app: x}, noTLS: true}", "mode: cluster\nnats: {url: tls://n1, secret: s}"} {
		sets := of[apps.StatefulSet](t, values)
		if len(sets) != 1 {
			t.Fatalf("%d StatefulSets", len(sets))
		}
		pod := sets[0].Spec.Template.Spec
		c := pod.Containers[0]
		switch {
		case len(pod.Containers) != 1 || len(sets[0].Spec.VolumeClaimTemplates) != 1:
			t.Errorf("%d containers, %d claims", len(pod.Containers), len(sets[0].Spec.VolumeClaimTemplates))
		case *pod.TerminationGracePeriodSeconds < 26:
			t.Errorf("it gets %d s to stop, and takes up to 25", *pod.TerminationGracePeriodSeconds)
		case !*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken:
			t.Errorf("%+v", pod)
		case !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL"):
			t.Errorf("%+v", c.SecurityContext)
		case c.StartupProbe.HTTPGet.Path != "/readyz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz":
			t.Errorf("its probes are %+v %+v %+v", c.StartupProbe, c.ReadinessProbe, c.LivenessProbe)
		case c.Resources.Limits.Memory().Value() < 2<<30:
			t.Errorf("its memory is %s", c.Resources.Limits.Memory())
		}
	}
}

// check ends the test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
