// KEDA's metrics server without its second listener: that one shows metrics of its own on all interfaces of the
// machine, and no flag binds it elsewhere. What answers the API server, and what asks KEDA's operator, is KEDA's.
package main

import (
	"context"
	"fmt"
	"os"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	basecmd "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/metricsservice"
	kedaprovider "github.com/kedacore/keda/v2/pkg/provider"
)

func run(ctx context.Context) error {
	ctrl.SetLogger(zap.New())
	adapter := &basecmd.AdapterBase{Name: "keda-adapter"}
	var operator string
	adapter.Flags().StringVar(&operator, "metrics-service-address", "", "address of the operator's metrics service")
	if err := adapter.Flags().Parse(os.Args); err != nil {
		return err
	}
	if err := kedav1alpha1.SchemeBuilder.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	certificates := adapter.SecureServing.ServerCert.CertDirectory
	client, err := metricsservice.NewGrpcClient(ctx, operator, certificates, "", "", grpcprom.NewClientMetrics(), false)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	adapter.WithExternalMetrics(kedaprovider.NewProvider(ctx, ctrl.Log, manager.GetClient(), *client))
	go func() { ended <- adapter.Run(ctx) }()
	return <-ended
}

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
