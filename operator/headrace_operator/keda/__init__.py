"""An external scaler for KEDA: gives KEDA the number of workers that our policy wants. Needs ``[keda]``."""
