"""What B14 scales: a small cluster with our operator and KEDA's, and Pods that say when they run their first job."""
