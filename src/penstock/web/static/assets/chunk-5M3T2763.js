var z={zh:"zh-71b2b3dbb0.json"};export{z as a};
