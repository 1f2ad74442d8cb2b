// Package helm tests the Helm chart in deploy/helm: it renders it with Helm's own code and
// decodes the result as Kubernetes and the Prometheus operator do. It is a module of its own,
// so that neither is a dependency of lapse.
package helm
