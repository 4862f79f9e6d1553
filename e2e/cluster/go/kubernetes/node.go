//go:build linux && node

package main

import (
	"context"

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	programs["kubelet"] = func() { run(kubelet.NewKubeletCommand(context.Background())) }
	programs["kube-proxy"] = func() { run(kubeproxy.NewProxyCommand()) }
	programs["coredns"] = coremain.Run
}
